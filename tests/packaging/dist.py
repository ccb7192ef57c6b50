"""Builds what is published, and installs it where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TIMEOUT_S = 100.0
NO_COMPILER = {"CC": "there-is-no-compiler-here"}


def build(folder: Path, kind: str, into: Path, **variables: str) -> tuple[Path, str]:
    """The wheel or sdist of the project in this folder, and what the build said."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    (made,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made, done.stdout + done.stderr


def unpack(sdist: Path, into: Path) -> Path:
    """The folder that a source archive holds."""
    into.mkdir()
    subprocess.run(["tar", "-xzf", sdist, "-C", into], check=True, timeout=TIMEOUT_S)
    (folder,) = into.iterdir()
    return folder


class Clean:
    """An environment with nothing in it but what is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"  # not the checkout: an import must find the installed package
        uv("venv", "--offline", "--python", sys.executable, str(folder))
        self.work.mkdir()

    def install(self, *arguments: str) -> None:
        uv("pip", "install", "--python", str(self.folder / "bin" / "python"), *arguments)

    def install_core(self, wheel: Path) -> None:
        """The wheel and what it needs without any extra, from this environment: no network."""
        self.install("--offline", "--no-deps", str(wheel))
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = self.folder / "lib" / version / "site-packages"
        for one in closure(PROJECT["dependencies"]):
            for file in one.files or ():
                if file.parts[0] not in ("..", "__pycache__"):
                    (site / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(str(file.locate()), site / file)

    def __call__(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this environment, with none of the surrounding one's settings."""
        foreign = ("PYTHON", "VIRTUAL_ENV", "HOLDFAST", "PYTEST", "COVERAGE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return subprocess.run(
            [self.folder / "bin" / command, *arguments],
            cwd=self.work,
            env=kept | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


def uv(*arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("uv")), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def closure(requirements: list[str]) -> list[Distribution]:
    """The installed distributions that these requirements lead to, each once."""
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    waiting = [Requirement(one) for one in requirements]
    while waiting:
        wanted = waiting.pop()
        if str(wanted) not in seen:
            seen.add(str(wanted))
            one = distribution(wanted.name)
            found[one.name] = one
            waiting += _needs(one, wanted.extras)
    return list(found.values())


def _needs(one: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for line in one.requires or ():
        need = Requirement(line)
        cases = [{"extra": extra} for extra in ("", *extras)]
        if need.marker is None or any(need.marker.evaluate(case) for case in cases):
            yield need
