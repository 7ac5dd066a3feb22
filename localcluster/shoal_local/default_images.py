"""The image map that `shoal local up` writes: every image of the project stands for this very installation.

Engines are the simulator (`sim`) or real SGLang engines on the CPU (`sglang-cpu`, from a prepared environment folder
with venv/, site/ and shim/).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from shoal_local.images import Environment

Engine = Literal["sim", "sglang-cpu"]
ENGINE_IMAGES: Final = ("lmsysorg/sglang", "shoal/engine", "shoal/engine-sim")
_PROGRAMS: Final = {"shoal/operator": "shoal-operator", "shoal/router": "shoal-router"}


class EngineEnvironmentError(ValueError):
    """The folder given for engines is not a prepared environment."""


def checkout() -> Path | None:
    """The checkout that this package runs from, if it does."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "simulator" / "sglang_shim").is_dir() else None


def _bin() -> str:
    return str(Path(sys.executable).parent)


def _kept() -> tuple[str, ...]:
    """The checkout, which an editable installation imports from, and the environment itself."""
    root = checkout()
    return tuple(str(path) for path in (root, Path(sys.prefix)) if path is not None)


def simulator_shim() -> Path:
    """Folder whose `sglang` package starts the simulator: `python3 -m sglang.launch_server` works unchanged."""
    root = checkout()
    if root is None:
        raise EngineEnvironmentError("simulated engines need a checkout of the project (simulator/sglang_shim)")
    return root / "simulator" / "sglang_shim"


def simulated_engine(image: str, variables: Mapping[str, str]) -> Environment:
    """An engine image that runs the simulator."""
    return Environment(
        image=image,
        path=(_bin(),),
        pythonPath=(str(simulator_shim()),),
        env=dict(variables),
        entrypoint=("python3", "-m", "sglang.launch_server") if image == "shoal/engine-sim" else (),
        keep=_kept(),
    )


def cpu_engine(image: str, folder: Path) -> Environment:
    """An engine image that runs SGLang on the CPU from a prepared environment."""
    folder = folder.resolve()
    for needed in ("venv/bin/python", "site/sglang", "shim"):
        if not (folder / needed).exists():
            raise EngineEnvironmentError(f"{folder} is not a prepared CPU engine environment: {needed} is missing")
    return Environment(
        image=image,
        path=(str(folder / "venv" / "bin"),),
        pythonPath=(str(folder / "shim"), str(folder / "site")),
        env={"TRITON_INTERPRET": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
        keep=(str(folder),),
    )


def default_images(engine: Engine, variables: Mapping[str, str], engine_folder: Path | None) -> list[Environment]:
    """All entries. `variables` go into simulated engines only."""
    entries = [
        Environment(image=image, path=(_bin(),), env={"PYTHONUNBUFFERED": "1"}, entrypoint=(program,), keep=_kept())
        for image, program in _PROGRAMS.items()
    ]
    for image in ENGINE_IMAGES:
        if engine == "sglang-cpu" and image != "shoal/engine-sim":
            if engine_folder is None:
                raise EngineEnvironmentError("engines on the CPU need the folder of a prepared environment")
            entries.append(cpu_engine(image, engine_folder))
        else:
            entries.append(simulated_engine(image, {"PYTHONUNBUFFERED": "1", **variables}))
    return entries
