"""`python -m sglang.launch_server [arguments]`, as in an engine's container."""

import sys

from shoal_sim.__main__ import launch

if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
