"""Builds the preload libraries into the package, where there is a C compiler.

The wheel is then one for this platform. Without a compiler the package is complete but for them.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class Shims(BuildHookInterface[Any]):
    """Runs for wheels and for editable installs alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile beside the sources; the libraries are no part of the repository."""
        del version
        folder = Path(self.root, "src", "holdfast", "verify", "shims")
        builder = runpy.run_path(str(folder / "build.py"))
        try:
            built = builder["build_all"](folder)
        except builder["CannotBuild"] as error:
            self.app.display_warning(f"preload libraries are left out: {error}")
            return
        build_data["artifacts"] += [str(path.relative_to(self.root)) for path in built]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"


def _platform() -> str:
    """This machine with its C library, by the name that a package index takes."""
    platforms = [tag.platform for tag in sys_tags()]
    named = (p for p in platforms if p.startswith(("manylinux_", "musllinux_")))
    return next(named, platforms[0])
