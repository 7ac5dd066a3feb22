"""Stands in for SGLang in the local cluster: `python -m sglang.launch_server` starts the simulator instead."""
