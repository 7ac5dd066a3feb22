"""The engine image's entrypoint, run by a real shell with other programs in the place of python3 and nvidia-smi."""

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "images" / "engine" / "entrypoint.sh"
SYSTEM_PROGRAMS = ("sh", "tr", "grep", "paste", "df", "awk", "cat", "mkdir", "head", "dirname")


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@dataclass(frozen=True)
class Image:
    """An installed entrypoint; `system` holds what lies behind it on PATH."""

    own: Path
    system: Path
    scratch: Path

    def gpus(self, count: int) -> None:
        lines = "\\n".join(f"GPU {index}: NVIDIA B200 (UUID: x)" for index in range(count))
        _program(self.system / "nvidia-smi", f'printf "{lines}\\n"')

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.own}:{self.system}",
            "SGLANG_CACHE_DIR": str(self.scratch / "cache"),
            "IMAGE_KEY_FILE": str(self.scratch / "image-key"),
            "TERMINATION_LOG": str(self.scratch / "termination-log"),
            **(env or {}),
        }
        return subprocess.run(
            [str(self.own / argv[0]), *argv[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )

    @property
    def last_words(self) -> str:
        return (self.scratch / "termination-log").read_text().strip()


@pytest.fixture
def image(tmp_path: Path) -> Image:
    own, system = tmp_path / "own", tmp_path / "system"
    own.mkdir()
    system.mkdir()
    shutil.copy(SCRIPT, own / "shoal-engine")
    (own / "python3").symlink_to("shoal-engine")
    for name in SYSTEM_PROGRAMS:
        found = shutil.which(name)
        assert found, name
        (system / name).symlink_to(found)
    _program(system / "python3", 'echo "real: $*"; echo "cache: $SGLANG_CACHE_DIR"; echo "path: $PATH"')
    (tmp_path / "image-key").write_text("0123abcd\n")
    made = Image(own, system, tmp_path)
    made.gpus(8)
    return made


def test_syntax() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    assert os.access(SCRIPT, os.X_OK)


@pytest.mark.parametrize("start", [("shoal-engine",), ("python3", "-m", "sglang.launch_server")])
def test_becomes_the_engine_with_the_same_arguments(image: Image, start: tuple[str, ...]) -> None:
    done = image.run(*start, "--tp-size", "8", "--json-model-override-args", '{"a b": 1}')
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == 'real: -m sglang.launch_server --tp-size 8 --json-model-override-args {"a b": 1}'
    assert said[1] == f"cache: {image.scratch}/cache/0123abcd"
    assert said[2] == f"path: {image.system}"
    assert (image.scratch / "cache" / "0123abcd").is_dir()


@pytest.mark.parametrize("argv", [("-c", "print(1)"), ("-m", "sglang.bench_serving", "--tp-size", "99"), ()])
def test_other_uses_of_python_pass_through(image: Image, argv: tuple[str, ...]) -> None:
    done = image.run("python3", *argv)
    assert done.stdout.splitlines()[0] == f"real: {' '.join(argv)}"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("argv", "needed"),
    [
        ("--tp-size 16", 16),
        ("--tp-size=16", 16),
        ("--tensor-parallel-size 8 --pp-size 2", 16),
        ("--tp-size 8 --dp-size 3", 24),
        ("--tp-size 32 --nnodes 2", 16),
        ("--tp-size 1 --tp-size 9", 9),
    ],
)
def test_too_few_gpus_are_told_before_anything_loads(image: Image, argv: str, needed: int) -> None:
    done = image.run("shoal-engine", *argv.split())
    assert done.returncode == 78
    assert done.stdout == ""
    assert f"{needed} GPUs are needed" in done.stderr
    assert "this container has 8" in image.last_words


@pytest.mark.parametrize("argv", ["--tp-size 8", "--tp-size 4 --pp-size 2", "--tp-size 8 --attn-dp-size 8", ""])
def test_enough_gpus(image: Image, argv: str) -> None:
    assert image.run("shoal-engine", *argv.split()).returncode == 0


def test_no_driver(image: Image) -> None:
    (image.system / "nvidia-smi").unlink()
    done = image.run("shoal-engine")
    assert done.returncode == 78
    assert "does the Pod ask for GPUs?" in image.last_words


def test_failing_driver(image: Image) -> None:
    _program(image.system / "nvidia-smi", "echo 'Driver/library version mismatch'; exit 9")
    assert image.run("shoal-engine").returncode == 78
    assert "Driver/library version mismatch" in image.last_words


def test_no_gpu_is_asked_for_on_other_devices(image: Image) -> None:
    (image.system / "nvidia-smi").unlink()
    assert image.run("shoal-engine", "--device", "cpu").returncode == 0


def test_little_shared_memory(image: Image) -> None:
    (image.system / "df").unlink()
    _program(image.system / "df", 'echo header; echo "shm 65536 0 65536 0% /dev/shm"')
    done = image.run("shoal-engine", "--tp-size", "2")
    assert done.returncode == 78
    assert "/dev/shm has 64 MiB" in image.last_words
    assert image.run("shoal-engine", "--tp-size", "1").returncode == 0


def test_a_number_that_is_none(image: Image) -> None:
    assert image.run("shoal-engine", "--tp-size", "eight").returncode == 78
    assert image.last_words == "--tp-size takes a number, not 'eight'"


def test_help_needs_no_gpu(image: Image) -> None:
    image.gpus(0)
    assert image.run("shoal-engine", "--tp-size", "8", "--help").returncode == 0


def test_unwritable_cache(image: Image) -> None:
    done = image.run("shoal-engine", env={"SGLANG_CACHE_DIR": "/proc/none"})
    assert done.returncode == 78
    assert "mount a volume at /proc/none" in image.last_words
