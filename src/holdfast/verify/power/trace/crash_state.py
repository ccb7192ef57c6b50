"""A crash state as a real directory, and the proof that a replay is true to one."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.verify.power.trace.disk_model import Crash
from holdfast.verify.power.trace.inode_operations import Kind
from holdfast.verify.power.trace.tree import Base, files_below, is_volatile

_UMASK: Final = 0o022
_LOG_FOLDER: Final = "pg_wal"
_DIFFERENCES_MAX: Final = 3


def build(crash: Crash, base: Base, kinds: dict[int, Kind], folder: Path) -> None:
    """Make the directory that the machine finds; `folder` is there, and empty."""
    made: dict[int, str] = {}
    for path, inode in crash.tree.walk():
        kind, place = kinds[inode], f"{folder}/{path}"
        if kind.type == "directory":
            os.mkdir(place, kind.mode & ~_UMASK)  # noqa: PTH102 - half the time, for each file
        elif kind.type == "link":
            os.symlink(kind.leads_to, place)  # noqa: PTH211
        elif inode in made:
            os.link(made[inode], place)
        else:
            _write(place, kind, base, crash.contents[inode])
            made[inode] = place
        if kind.owner is not None:
            os.chown(place, *kind.owner, follow_symlinks=False)


def _write(place: str, kind: Kind, base: Base, content: bytes | bytearray | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(place, flags, kind.mode & ~_UMASK | stat.S_IRUSR | stat.S_IWUSR)
    try:
        if content is not None:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(file, rest) :]
            return
        with (base.folder / (kind.base or "")).open("rb") as source:
            while os.sendfile(file, source.fileno(), None, 1 << 30):
                pass
    finally:
        os.close(file)


def replace(folder: Path, state: Path) -> None:
    """Put a state in place of what is in a directory; the kit's own files in it stay."""
    _empty(folder, "")
    for entry in list(state.iterdir()):
        _move(entry, folder / entry.name)


def _move(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink() and target.is_dir():
        for entry in list(source.iterdir()):
            _move(entry, target / entry.name)
        return
    shutil.move(source, target)


def _empty(folder: Path, path: str) -> bool:
    """Remove all but the kit's own files; whether nothing is left."""
    empty = True
    for entry in list(os.scandir(folder / path)):
        below = f"{path}/{entry.name}" if path else entry.name
        if entry.is_dir(follow_symlinks=False):
            empty = _empty(folder, below) and empty
        elif entry.name == "engine.log":
            empty = False
        else:
            Path(entry.path).unlink()
    if empty and path:
        (folder / path).rmdir()
    return empty


def differences(crash: Crash, base: Base, kinds: dict[int, Kind], live: Path) -> list[str]:
    """Where a directory is not what the replay says, byte for byte; a few, in words."""
    wanted = {path: inode for path, inode in crash.tree.walk() if not is_volatile(path)}
    found = {path for path, _ in files_below(live)}
    wrong = [f"{path} is there" for path in sorted(found - wanted.keys())]
    wrong += [f"{path} is not there" for path in sorted(wanted.keys() - found)]
    for path in sorted(found & wanted.keys()):
        inode = wanted[path]
        if kinds[inode].type != "file":
            continue
        content = crash.contents[inode]
        expected = (
            (base.folder / (kinds[inode].base or "")).read_bytes() if content is None else content
        )
        real = (live / path).read_bytes()
        if real != expected and not _is_later_log(path, real, expected):
            at = first_difference(real, expected)
            wrong.append(
                f"{path} differs at byte {at} ({len(real)} bytes, replayed {len(expected)})"
            )
    return wrong


def first_difference(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """The first byte in which they differ; where one ends and the other goes on, that place."""
    shared = min(len(one), len(other))
    return next((n for n in range(shared) if one[n] != other[n]), shared)


def _is_later_log(path: str, real: bytes, expected: bytes | bytearray) -> bool:
    """Whether a log of PostgreSQL holds more than was seen, where nothing was seen yet.

    It writes pages out of memory to which others append meanwhile. The tracer looked before the
    kernel did, and nobody who waits for such a write waits for what came between.
    """
    return (
        f"/{_LOG_FOLDER}/" in path
        and len(real) == len(expected)
        and not any(old for old, new in zip(expected, real, strict=True) if old != new)
    )


def prove_same(wrong: list[str]) -> None:
    """`FaultNotProven` where a replay and the directory differ: then nothing can be said."""
    if wrong:
        raise FaultNotProven(
            "power cut by trace: the replay of every call is not what is in the directory: "
            + "; ".join(wrong[:_DIFFERENCES_MAX]),
            operation="power",
        )
