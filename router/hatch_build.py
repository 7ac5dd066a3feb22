"""The wheel's build hook: puts the compiled router into it where `HATCH_BUILD_HOOK_ENABLE_CUSTOM=1` asks for that.

Without it the wheel is pure Python and runs anywhere. Loaded by hatchling (pyproject.toml names it); the router's image
is built with it.
"""

import subprocess
import sys
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledRouter(BuildHookInterface[Any]):
    """One build."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles, and has what was made included. An editable installation stays interpreted."""
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-wheel-")
        built = Path(self._folder.name)
        script = Path(self.root) / "router" / "build_compiled.py"
        subprocess.run([sys.executable, "-P", str(script), "--into", str(built)], check=True)
        for path in built.rglob("*"):
            if path.name.endswith(EXTENSION_SUFFIXES[0]):
                build_data["force_include"][str(path)] = str(path.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
