"""The Linux calls that Python 3.11 has no name for. Standard library only: `launch` imports it without our package."""

import ctypes
import os
import platform

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2
CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWUSER = 0x10000000

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 0x1
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def die_with_parent(signal_number: int) -> None:
    """This process gets the signal when the thread that started it ends; stays so over exec."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def no_new_privileges() -> None:
    """`allowPrivilegeEscalation: false`."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    arguments = (
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )
    _check(_libc.mount(*arguments), f"mount {source} at {target}")


def detach(target: str) -> None:
    """umount2(2) with MNT_DETACH."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def set_read_only(target: str, read_only: bool, recursive: bool) -> None:
    """mount_setattr(2), Linux 5.12: unlike a remount it reaches the mounts below."""
    flag = _MOUNT_ATTR_RDONLY
    attributes = _MountAttributes(flag if read_only else 0, 0 if read_only else flag, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"set {target} read-only={read_only}")


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    number = _SYS_PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(38, f"pivot_root is not known on {platform.machine()}", new_root)
    result = _libc.syscall(
        ctypes.c_long(number), ctypes.c_char_p(os.fsencode(new_root)), ctypes.c_char_p(os.fsencode(put_old))
    )
    _check(result, f"pivot_root to {new_root}")


def unshare(flags: int) -> None:
    """unshare(2); with CLONE_NEWUSER the caller keeps its user and group numbers."""
    user, group = os.getuid(), os.getgid()
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")
    if flags & CLONE_NEWUSER:
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)


def join_namespaces(pid: int) -> None:
    """Enters the user (where it differs), mount and host-name namespaces of a process."""
    names = ["mnt", "uts"]
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        names.insert(0, "user")
    handles = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
    for name, handle in zip(names, handles, strict=True):
        _check(_libc.setns(ctypes.c_int(handle), ctypes.c_int(0)), f"setns {name} of {pid}")
        os.close(handle)
