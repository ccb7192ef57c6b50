"""Builds the preload libraries from their C sources.

This file stands alone and needs only the standard library: the build of the package runs it by
its path (`hatch_build.py`), and the kit runs it where an installed package has no library.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(source.stem for source in SOURCES.glob("*.c")))
_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra")
_TIMEOUT_S: Final = 60.0


class CannotBuild(Exception):
    """There is no compiler, or it refuses; in words."""


def file_name(name: str) -> str:
    """The library's file: named by what it is made of, so that an outdated one is never found."""
    parts = [SOURCES / f"{name}.c", *sorted(SOURCES.glob("*.h"))]
    content = b"\0".join(part.read_bytes() for part in parts)
    return f"{name}-{hashlib.blake2b(content, digest_size=6).hexdigest()}.so"


def build(name: str, folder: Path) -> Path:
    """Compile one into the folder and return its path; whole or absent, also if several do it."""
    compiler = _compiler()
    library = folder / file_name(name)
    part = library.with_suffix(f".{os.getpid()}.part")
    words = [*compiler, *_FLAGS, str(SOURCES / f"{name}.c"), "-o", str(part), "-ldl"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(  # noqa: S603 - a compiler and our own source
            words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise CannotBuild(f"{shlex.join(words)} failed: {done.stderr.strip()[-500:]}")
        part.rename(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{shlex.join(words)}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return library


def build_all(folder: Path) -> list[Path]:
    """Every library, and none of an earlier source beside them."""
    built = [build(name, folder) for name in NAMES]
    for old in set(folder.glob("*.so")) - set(built):
        old.unlink()
    return built


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    for words in [named] if named else [[name] for name in _COMPILERS]:
        if shutil.which(words[0]) is not None:
            return words
    looked = named[0] if named else ", ".join(_COMPILERS)
    raise CannotBuild(f"there is no C compiler here (looked for {looked})")
