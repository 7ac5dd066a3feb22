"""Gives a container's process a file system view of its own: the machine's root with volumes at their true paths.

Run inside the process that becomes the container (see `launch`). No overlay and no copy: a tmpfs becomes the root and
every entry of the machine's root is bound into it. Where a mount point does not exist, the nearest folder that does is
opened in the same way (a tmpfs with its entries bound), so that nothing is ever created on the machine itself.
Root does this directly; any other user inside a user namespace of its own, where the machine allows one.

The spec: `hostname`, `mounts` (source, target, read_only; source "tmpfs" makes an empty one), `read_only` (root).
"""

import os
import socket
from typing import Any, Final

from shoal_local import kernel

_OLD: Final = "/.old"
_NEW: Final = "/.new"
_NEVER_READ_ONLY: Final = ("dev", "proc", "sys")


class _Root:
    """The new root while it is put together; paths are given as the container will see them."""

    def __init__(self) -> None:
        self._open = {""}
        """Folders that are our own tmpfs or a volume: new entries may be made there."""

    def real(self, path: str) -> str:
        return f"{_NEW}{path}"

    def populate(self, folder: str, origin: str) -> None:
        """Binds every entry of the machine's folder `origin` into our empty folder."""
        for name in sorted(os.listdir(origin)):
            source, target = f"{origin}/{name}", self.real(f"{folder}/{name}")
            if os.path.islink(source):
                os.symlink(os.readlink(source), target)
                continue
            if os.path.isdir(source):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
            kernel.mount(source, target, None, kernel.MS_BIND | kernel.MS_REC)

    def resolve(self, path: str) -> str:
        """Follows symbolic links inside the new root (/var/run -> /run), whether or not the end exists."""
        parts, done, hops = [part for part in path.split("/") if part], "", 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            if part != "." and os.path.islink(self.real(here)):
                hops += 1
                if hops > 40:
                    raise OSError(40, "Too many levels of symbolic links", path)
                link = os.readlink(self.real(here))
                parts = [each for each in link.split("/") if each] + parts
                done = "" if link.startswith("/") else done
            elif part != ".":
                done = here
        return done

    def _open_up(self, folder: str) -> None:
        """Replaces a folder of the machine by a tmpfs that shows the same entries and takes new ones."""
        mode = os.stat(self.real(folder)).st_mode & 0o7777
        kernel.mount("tmpfs", self.real(folder), "tmpfs", kernel.MS_NOSUID, f"mode={mode:o}")
        self.populate(folder, f"{_OLD}{folder}")
        self._open.add(folder)

    def make_point(self, path: str, is_folder: bool) -> str:
        """Makes sure that there is something to mount over at `path`; returns the path without links."""
        resolved = self.resolve(path)
        done = ""
        parts = [part for part in resolved.split("/") if part]
        for index, part in enumerate(parts):
            here = f"{done}/{part}"
            if not os.path.lexists(self.real(here)):
                if done not in self._open:
                    self._open_up(done)
                if index < len(parts) - 1 or is_folder:
                    os.mkdir(self.real(here))
                    self._open.add(here)
                else:
                    os.close(os.open(self.real(here), os.O_CREAT | os.O_WRONLY, 0o666))
            done = here
        return resolved

    def volume(self, source: str, target: str) -> str:
        """Binds a file or folder of the machine at `target`."""
        origin = f"{_OLD}{source}"
        is_folder = source == "tmpfs" or os.path.isdir(origin)
        point = self.make_point(target, is_folder)
        if source == "tmpfs":
            kernel.mount("tmpfs", self.real(point), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
        else:
            kernel.mount(origin, self.real(point), None, kernel.MS_BIND | kernel.MS_REC)
        if is_folder:
            self._open.add(point)
        return point


def _separate() -> None:
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS
    kernel.unshare(flags if os.geteuid() == 0 else flags | kernel.CLONE_NEWUSER)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)


def enter(spec: dict[str, Any]) -> None:
    """Moves this process into its own root. Raises OSError when the machine does not allow it."""
    _separate()
    if spec.get("hostname"):
        socket.sethostname(spec["hostname"])
    # As bubblewrap does it: a tmpfs over /tmp becomes the root, which uncovers the machine's /tmp below /.old.
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")  # noqa: S108
    os.chdir("/tmp")  # noqa: S108
    os.mkdir(f".{_OLD}")
    os.mkdir(f".{_NEW}")
    kernel.pivot_root(".", f".{_OLD}")
    os.chdir("/")
    kernel.mount("tmpfs", _NEW, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    root = _Root()
    root.populate("", _OLD)
    parents_first = sorted(spec["mounts"], key=lambda each: str(each["target"]).count("/"))
    points = [(root.volume(each["source"], each["target"]), bool(each["read_only"])) for each in parents_first]
    _protect(root, points, bool(spec.get("read_only")))
    os.chdir(_NEW)
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")


def _protect(root: _Root, points: list[tuple[str, bool]], read_only_root: bool) -> None:
    if read_only_root:
        for name in os.listdir(_NEW):
            path = f"{_NEW}/{name}"
            if name not in _NEVER_READ_ONLY and not os.path.islink(path) and os.path.ismount(path):
                kernel.set_read_only(path, True, recursive=True)
        kernel.set_read_only(_NEW, True, recursive=False)
    for point, read_only in points:
        if read_only:
            kernel.set_read_only(root.real(point), True, recursive=True)
        elif read_only_root:
            kernel.set_read_only(root.real(point), False, recursive=False)
