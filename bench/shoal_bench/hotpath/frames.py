"""Stacks as py-spy writes them, cut down to what a reader wants to see. Pure. Called by `run`.

A raw line holds frames from the outermost in, `name (file:line)`, and how often that stack was seen. Most frames are
machinery: the interpreter, wrappers that mypyc writes around a function, inlined reference counting. What stays:

- the router's functions, `module:Class.method`, under one name whether they ran compiled or interpreted;
- system calls, `kernel write`;
- libraries, one frame each however deep they go: `uvloop`, `llhttp`, `orjson`, `xxhash`;
- what frees objects, `freeing Class`, as far as it has a name of its own: a compiled class has, for others the
  interpreter does it and its time stays with the function that let go of them;
- other Python functions that ours call.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

Stack = tuple[str, ...]

COLLECTOR: Final = "freeing: collector"

_FRAME: Final = re.compile(r"^(?P<name>.*?)(?: \((?P<file>[^()]*)\))?$")
_LINE: Final = re.compile(r":\d+$")
_PACKAGE: Final = "shoal_router/"
_KERNEL: Final = {
    "write": "write", "writev": "write", "send": "write", "sendmsg": "write", "sendto": "write",
    "read": "read", "readv": "read", "recv": "read", "recvmsg": "read", "recvfrom": "read",
    "epoll_wait": "epoll", "epoll_pwait": "epoll", "epoll_ctl": "epoll",
}  # fmt: skip
_LIBRARIES: Final = {
    "loop.c": "uvloop", "core.c": "uvloop", "stream.c": "uvloop", "linux.c": "uvloop", "loop-watcher.c": "uvloop",
    "timer.c": "uvloop", "queue.h": "uvloop", "parser.c": "llhttp", "llhttp.c": "llhttp", "api.c": "llhttp",
    "_xxhash.c": "xxhash",
}  # fmt: skip
_PACKAGES: Final = {"uvloop/": "uvloop", "httptools/": "llhttp", "orjson/": "orjson", "xxhash/": "xxhash"}
_FREEING: Final = re.compile(r"^(?P<cls>[A-Z_]\w*?)_(?:dealloc|clear|traverse)$")
_MAKING: Final = re.compile(r"^__mypyc__(?P<cls>\w+)_setup$")
_STARTUP: Final = ("__main__", "runtime")


class UnreadableError(Exception):
    """What a profiler wrote is not understood."""


def fold(lines: Iterable[str], modules: Collection[str]) -> Counter[Stack]:
    """Stacks and their samples. `modules` are the router's, such as `server.head`. Raises UnreadableError."""
    found: Counter[Stack] = Counter()
    for line in lines:
        if not line.strip():
            continue
        stack, _, count = line.rstrip().rpartition(" ")
        if not stack or not count.isdigit():
            raise UnreadableError(f"no stack and count: {line[:200]!r}")
        found[_folded(stack.split(";"), modules)] += int(count)
    return found


def _folded(raw: Iterable[str], modules: Collection[str]) -> Stack:
    made: list[str] = []
    for text in raw:
        name = label(text, modules)
        if name is not None and not (made and made[-1] == name):
            made.append(name)
    return tuple(made)


def label(text: str, modules: Collection[str]) -> str | None:
    """What a frame is called; None for machinery."""
    parts = _FRAME.match(text)
    assert parts is not None  # the pattern takes any line
    name, file = parts["name"], _LINE.sub("", parts["file"] or "")
    if file.startswith(_PACKAGE) and file.endswith(".py"):
        module = file.removeprefix(_PACKAGE).removesuffix(".py").replace("/", ".")
        return None if module.split(".")[0] in _STARTUP else f"{module}:{name}"
    if file.endswith(".py") or file.startswith("<"):
        return None if file.startswith(("asyncio/", "<")) else f"python:{name}"
    if file.startswith("shoal_router"):
        return _compiled(name, modules)
    if name == "gc_collect_main":
        return COLLECTOR
    if file.startswith("libc") and name in _KERNEL:
        return f"kernel {_KERNEL[name]}"
    if file in _LIBRARIES:
        return _LIBRARIES[file]
    return next((known for start, known in _PACKAGES.items() if file.startswith(start)), None)


def _compiled(name: str, modules: Collection[str]) -> str | None:
    """Of mypyc's C names: `CPyDef_<module>___<Class>___<method>`, where the module's name is as short as is unique.
    `CPyPy_` wraps a CPyDef for callers that pass Python objects; what else begins with CPy is mypyc's run time."""
    if name.startswith(("CPyPy_", "CPyDunder_")):
        return None
    if not name.startswith("CPyDef_") and name.startswith("CPy"):
        return f"mypyc:{name}"
    words = name.removeprefix("CPyDef_").split("___")
    for count in range(len(words) - 1, 0, -1):
        module = _module(words[:count], modules)
        if module is not None:
            return _member(module, words[count:])
    return None


def _module(words: Iterable[str], modules: Collection[str]) -> str | None:
    short = ".".join(words)
    return next((one for one in sorted(modules) if one == short or one.endswith(f".{short}")), None)


def _member(module: str, words: list[str]) -> str:
    freed = _FREEING.match(words[-1])
    if freed is not None and len(words) == 1:
        return f"freeing {freed['cls']}"
    made = _MAKING.match(words[-1])
    if made is not None:
        return f"{module}:{made['cls']}"
    return f"{module}:{'.'.join(words)}"
