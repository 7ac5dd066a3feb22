#!/bin/sh
# Stands before SGLang in the engine image: checks what would otherwise fail minutes later in a worker, keeps caches of
# different images apart, then becomes the engine.
#
# It is installed twice: as the image's ENTRYPOINT `shoal-engine`, which takes launch_server's arguments, and as `python3`
# in front on PATH, because a Pod's command replaces an ENTRYPOINT and the operator gives `python3 -m
# sglang.launch_server`, which stock images take as well. Every other use of python3 passes through untouched.
set -eu

own=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# Without our folder, so that nobody meets this script twice.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -Fxv -- "$own" | paste -sd: -)
export PATH

fail() {
  printf 'shoal-engine: %s\n' "$1" >&2
  # Kubernetes shows this file's text as the container's last words.
  printf '%s\n' "$1" 2>/dev/null >"${TERMINATION_LOG:-/dev/termination-log}" || true
  exit 78
}

case ${0##*/} in
  python3*)
    if [ "${1:-}" != -m ] || [ "${2:-}" != sglang.launch_server ]; then
      exec python3 "$@"
    fi
    shift 2
    ;;
esac

# Value of the last of several spellings of a flag, or a default.
value() {
  default=$1
  names=$2
  shift 2
  found=$default
  previous=
  for word in "$@"; do
    for name in $names; do
      case $word in
        "--$name="*) found=${word#*=} ;;
      esac
      if [ "$previous" = "--$name" ]; then found=$word; fi
    done
    previous=$word
  done
  printf '%s' "$found"
}

number() {
  count=$(value "$@")
  case $count in
    '' | *[!0-9]*) fail "--${2%% *} takes a number, not '$count'" ;;
  esac
  printf '%s' "$count"
}

# Flags with which the engine only prints something.
for word in "$@"; do
  case $word in
    --help | -h) exec python3 -m sglang.launch_server "$@" ;;
  esac
done

tensor=$(number 1 'tp-size tensor-parallel-size' "$@")
pipeline=$(number 1 'pp-size pipeline-parallel-size' "$@")
data=$(number 1 'dp-size data-parallel-size' "$@")
nodes=$(number 1 'nnodes' "$@")
[ "$nodes" -gt 0 ] || fail "--nnodes must be at least 1"
needed=$((tensor * pipeline * data / nodes))

if [ "$(value cuda device "$@")" = cuda ]; then
  command -v nvidia-smi >/dev/null || fail "no nvidia-smi in this container: is the NVIDIA container runtime in use, and does the Pod ask for GPUs?"
  list=$(nvidia-smi -L 2>&1) || fail "nvidia-smi failed: $(printf '%s' "$list" | head -n 1)"
  present=$(printf '%s\n' "$list" | grep -c '^GPU ' || true)
  if [ "$present" -lt "$needed" ]; then
    fail "$needed GPUs are needed (tensor $tensor x pipeline $pipeline x data $data / nodes $nodes), and this container has $present"
  fi
fi

if [ "$needed" -gt 1 ] && shm_kb=$(df -Pk "${SHM_PATH:-/dev/shm}" 2>/dev/null | awk 'NR == 2 {print $2}') && [ -n "$shm_kb" ]; then
  if [ "$shm_kb" -lt 1048576 ]; then
    fail "/dev/shm has $((shm_kb / 1024)) MiB: several GPUs need 1 GiB or more; mount an emptyDir with medium Memory there"
  fi
fi

# Kernels are compiled for one build of one image; another's would be wrong, or be compiled over and over.
cache=${SGLANG_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/sglang}
key=$(cat "${IMAGE_KEY_FILE:-/opt/shoal/image-key}" 2>/dev/null || printf unknown)
SGLANG_CACHE_DIR=$cache/$key
export SGLANG_CACHE_DIR
mkdir -p "$SGLANG_CACHE_DIR" || fail "the cache folder $SGLANG_CACHE_DIR cannot be made: mount a volume at $cache"
printf 'shoal-engine: %s GPUs, caches in %s\n' "$needed" "$SGLANG_CACHE_DIR" >&2

exec python3 -m sglang.launch_server "$@"
