"""Preload libraries: small, in C, and built when the package is installed.

Each stands between a process and the C library, and is steered through a small shared file
while the process runs. Whatever needs one says so in a sentence where there is none.
"""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Final

from holdfast.errors import VerifyError
from holdfast.verify.instrument import Launch
from holdfast.verify.rundir import cache_dir
from holdfast.verify.shims import build

PRELOAD: Final = "LD_PRELOAD"


def library(name: str) -> Path:
    """The built library; built now where the package has none. `VerifyError` if that fails."""
    file = build.file_name(name)
    if (build.SOURCES / file).exists():
        return build.SOURCES / file
    cached = cache_dir() / "shims"
    if (cached / file).exists():
        return cached / file
    try:
        return build.build(name, cached)
    except build.CannotBuild as error:
        raise VerifyError(
            f"this fault needs the preload library `{name}`, which was not built when holdfast was "
            f"installed, and cannot be built now: {error}. Install a wheel that carries it, or a "
            "compiler: apt-get install gcc libc6-dev"
        ) from error


def preload(launch: Launch, name: str, folder: Path, **variables: str) -> Launch:
    """The process with this library in it, after those that are there already.

    Where another user could not read the library, a copy in the folder is taken: a library
    that cannot be opened is left out without an error.
    """
    path = library(name)
    if not _is_open_to_all(path):
        path = _copy(path, folder)
    before = launch.environment.get(PRELOAD)
    words = str(path) if not before else f"{before}:{path}"
    return Launch(launch.command, {**launch.environment, PRELOAD: words, **variables})


def _copy(path: Path, folder: Path) -> Path:
    """A copy for every user; its file is never written again, for running processes map it."""
    own = folder / path.name
    if not own.exists():
        part = own.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
        part.write_bytes(path.read_bytes())
        part.chmod(0o644)
        part.rename(own)
    return own


def _is_open_to_all(path: Path) -> bool:
    """Whether any user of this machine can get there and read it."""
    if not path.stat().st_mode & stat.S_IROTH:
        return False
    return os.geteuid() != 0 or all(at.stat().st_mode & stat.S_IXOTH for at in path.parents)
