#!/usr/bin/env bash
# Writes the hashed locks of the images: what one process needs, at the versions of the project's own locks.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { # OUT CONSTRAINTS ARGUMENTS...
  local out=$1 constraints=$2
  shift 2
  .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate \
    --python-version 3.11 --constraint "$constraints" --output-file "$out" "$@"
}
for part in operator router sim; do
  folder=$part; [ "$part" = sim ] && folder=engine-sim
  compile "images/$folder/requirements.txt" requirements.txt --extra "$part" pyproject.toml
done
printf 'hatchling\n' | compile images/requirements-build.txt requirements-dev.txt -
printf 'hatchling\nmypy[mypyc]\n' | compile images/router/requirements-build.txt requirements-dev.txt -
