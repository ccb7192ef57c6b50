"""Names that lead to inodes, and what each inode is."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.verify.power.trace.inode_operations import ROOT, Edit, Kind

_VOLATILE_NAMES: Final = ("engine.log",)
"""The kit's own file beside an engine's data."""
_VOLATILE_FOLDERS: Final = ("pg_dynshmem",)
"""Shared memory of PostgreSQL, which it empties at every start."""


def is_volatile(path: str) -> bool:
    """Whether a file has no part in what survives: a process that starts creates it again.

    SQLite's `-shm` is shared memory between processes, rebuilt from the log.
    """
    *folders, name = path.split("/")
    return (
        name.endswith("-shm")
        or name in _VOLATILE_NAMES
        or any(f in _VOLATILE_FOLDERS for f in folders)
    )


@dataclass(slots=True)
class Tree:
    """For each directory its names. A path is relative to the root; "" is the root."""

    entries: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})

    def copy(self) -> Tree:
        """One that changes by itself."""
        return Tree({inode: dict(names) for inode, names in self.entries.items()})

    def find(self, path: str) -> int | None:
        """The inode that a path leads to."""
        inode: int | None = ROOT
        for name in path.split("/") if path else ():
            inode = self.entries.get(inode, {}).get(name) if inode is not None else None
        return inode

    def parent(self, path: str) -> tuple[int | None, str]:
        """The directory that holds a path, and its name in there."""
        folder, _, name = path.rpartition("/")
        return self.find(folder), name

    def apply(self, edits: tuple[Edit, ...]) -> None:
        """Change names. A directory that is new is empty."""
        for edit in edits:
            names = self.entries.setdefault(edit.directory, {})
            if edit.inode is None:
                names.pop(edit.name, None)
            else:
                names[edit.name] = edit.inode

    def walk(self, inode: int = ROOT, path: str = "") -> Iterator[tuple[str, int]]:
        """Every path with its inode; a directory before what is in it."""
        for name, child in self.entries.get(inode, {}).items():
            below = f"{path}/{name}" if path else name
            yield below, child
            yield from self.walk(child, below)


@dataclass(slots=True)
class Base:
    """The directory as it was before anybody was traced: a copy, and who is who in it."""

    folder: Path
    tree: Tree = field(default_factory=Tree)
    kinds: dict[int, Kind] = field(default_factory=lambda: {ROOT: Kind("directory", 0o700)})
    sizes: dict[int, int] = field(default_factory=dict)


def copy_base(live: Path, folder: Path) -> Base:
    """Copy a directory that nobody changes meanwhile. Names of one inode stay names of one."""
    base = Base(folder)
    folder.mkdir(parents=True)
    seen: dict[tuple[int, int], int] = {}
    for path, status in files_below(live):
        key = (status.st_dev, status.st_ino)
        parent, name = base.tree.parent(path)
        known = seen.get(key)
        inode = len(base.kinds) if known is None else known
        base.tree.apply((Edit(parent or ROOT, name, inode),))
        if known is None:
            seen[key] = inode
            base.kinds[inode] = _kind(live, folder, path, status)
            base.sizes[inode] = status.st_size
            if stat.S_ISDIR(status.st_mode):
                base.tree.entries[inode] = {}
    return base


def _kind(live: Path, folder: Path, path: str, status: os.stat_result) -> Kind:
    mode = stat.S_IMODE(status.st_mode)
    mine = (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    owner = None if mine else (status.st_uid, status.st_gid)
    if stat.S_ISDIR(status.st_mode):
        (folder / path).mkdir()
        return Kind("directory", mode, owner=owner)
    if stat.S_ISLNK(status.st_mode):
        return Kind("link", mode, owner=owner, leads_to=str((live / path).readlink()))
    shutil.copyfile(live / path, folder / path)
    return Kind("file", mode, base=path, owner=owner)


def files_below(folder: Path, path: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Every path in a directory but the volatile ones, a directory before what is in it."""
    with os.scandir(folder / path) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        below = f"{path}/{entry.name}" if path else entry.name
        status = entry.stat(follow_symlinks=False)
        if is_volatile(below) or stat.S_ISSOCK(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            continue
        yield below, status
        if stat.S_ISDIR(status.st_mode):
            yield from files_below(folder, below)
