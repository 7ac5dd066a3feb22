#!/usr/bin/env bash
# Prepares a real SGLang engine for a machine without a GPU: the real scheduler, radix cache and HTTP surface, with
# Triton's interpreter, torch's own attention and a two-layer Llama of random weights. For tests of what talks to an
# engine, never for speed; upstream does not support it.
#
#   setup_cpu_engine.sh DIR      Python 3.11; 2.7 GB with the CPU build of torch, 5.6 GB with the CUDA build
#
# Leaves DIR/environment.json: the variables that make `python3 -m sglang.launch_server` this engine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(mkdir -p "$1" && cd "$1" && pwd)
stamp=$dir/.ready-$(cat "$here"/requirements*.txt "$here"/*.py "$here"/*.sh "$here"/shim/*.py "$here"/shim/vllm/*.py | sha256sum | cut -c1-16)
if [ -e "$stamp" ]; then echo "CPU engine ready in $dir"; exit 0; fi

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "The locked packages of the CPU engine need Python 3.11; name it with PYTHON=/path/to/python3.11" >&2; exit 1; }
uv=$(cd "$here/../.." && pwd)/.venv/bin/uv
echo "Installing the CPU engine into $dir (2 to 5 minutes; most of it is torch)"
[ -x "$dir/venv/bin/python" ] || "$python" -m venv "$dir/venv"
VIRTUAL_ENV=$dir/venv "$uv" pip sync --quiet --require-hashes "$here/requirements.txt"

# sglang without its GPU dependencies: the wheel is unpacked, not installed
rm -rf "$dir/site" "$dir/shim"
VIRTUAL_ENV=$dir/venv "$uv" pip install --quiet --require-hashes --no-deps --target "$dir/site" -r "$here/requirements-sglang.txt"
cp -r "$here/shim" "$dir/shim"

echo "Making the tokenizer and the model's config"
"$dir/venv/bin/python" "$here/make_model.py" "$dir/models/nano-llama" "$dir/venv/lib/python3.11/site-packages/torch"
cat > "$dir/environment.json" <<J
{
  "PATH": "$dir/venv/bin",
  "PYTHONPATH": "$dir/shim:$dir/site",
  "TRITON_INTERPRET": "1",
  "HF_HUB_OFFLINE": "1",
  "PYTHONUNBUFFERED": "1",
  "SHOAL_TEST_MODEL": "$dir/models/nano-llama"
}
J
touch "$stamp"
echo "CPU engine ready in $dir"
