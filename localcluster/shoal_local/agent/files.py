"""Layout of a container's folder: logs by restart count, the process id, the termination message.

Read by the kubelet port (`logs`) and by `shoal local logs|fault`; written by `container`.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Final

_MESSAGE_BYTES_MAX: Final = 4096
_FALLBACK_BYTES_MAX: Final = 2048
_FALLBACK_LINES: Final = 80
_LOG_BYTES_MAX: Final = 64 * 1024**2
_OLD_LOGS_MAX: Final = 100


def container_folder(pod_folder: Path, container: str) -> Path:
    """Folder of one container of a Pod."""
    return pod_folder / "containers" / container


def log_path(folder: Path, restarts: int) -> Path:
    """Log of the run after so many restarts."""
    return folder / "logs" / f"{restarts}.log"


def newest_logs(folder: Path) -> list[Path]:
    """Logs that are kept, the current run's first."""
    return sorted((folder / "logs").glob("*.log"), key=lambda path: int(path.stem), reverse=True)


def remove_old_logs(folder: Path, keep_from: int) -> None:
    """Keeps the run before this one and this one, as a kubelet does."""
    for path in newest_logs(folder):
        if int(path.stem) < keep_from:
            path.unlink(missing_ok=True)


def trim_log(path: Path) -> None:
    """Empties a log that has grown too large, keeping one copy; its writer appends, so it goes on at the start."""
    if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
        shutil.copyfile(path, path.with_suffix(".trimmed"))
        with path.open("r+b") as file:
            file.truncate(0)


def write_pid(folder: Path, pid: int) -> None:
    """Notes the process id of a running container."""
    (folder / "pid").write_text(str(pid))


def remove_pid(folder: Path) -> None:
    """It does not run any more."""
    (folder / "pid").unlink(missing_ok=True)


def read_pid(folder: Path) -> int | None:
    """The process id of a running container."""
    try:
        return int((folder / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def termination_message(written: Path, log: Path, fallback: bool) -> str:
    """What the container left at its terminationMessagePath, or the end of its log where that is asked for."""
    with contextlib.suppress(FileNotFoundError):
        message = written.read_bytes()[-_MESSAGE_BYTES_MAX:].decode(errors="replace")
        written.write_bytes(b"")
        if message or not fallback:
            return message
    if not fallback:
        return ""
    with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _FALLBACK_BYTES_MAX))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_FALLBACK_LINES:])
    return ""


def keep_logs_of_gone_pod(pod_folder: Path, target: Path) -> None:
    """Moves the last log of each container aside before a Pod's folder is removed; the newest hundred are kept."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in (pod_folder / "containers").glob("*"):
        logs = newest_logs(folder)
        if logs and logs[0].stat().st_size:
            namespace, name, uid = pod_folder.name.split("_")
            shutil.move(logs[0], target / f"{namespace}_{name}_{folder.name}_{uid[:8]}.log")
    kept = sorted(target.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[_OLD_LOGS_MAX:]:
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Deletes a Pod's folder, whatever its containers have left in it."""
    shutil.rmtree(folder, ignore_errors=True)
