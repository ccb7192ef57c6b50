"""Faults upon a data directory: moved away and put back, become read-only."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.proof import Evidence
from holdfast.verify.undo import Undo

_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_IMMUTABLE: Final = 0x10
_WRITE_BITS: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class MovedAway(Block):
    """A directory that is not where it was. Open files in it stay open, as on a real disk."""

    def __init__(self, directory: Path) -> None:
        """Name the directory; `apply` moves it."""
        self.path = directory.absolute()
        self.kept = self.path.with_name(f"{self.path.name}.away-{secrets.token_hex(4)}")
        self._undo: Undo | None = None

    def apply(self) -> Evidence:
        """Move it aside; proven by stat: gone from here, the same inode there."""
        before = self._stat(self.path)
        if before is None or not stat.S_ISDIR(before.st_mode):
            raise UsageError(f"there is no directory {self.path} to move away")
        self._undo = Undo("mv", "--no-target-directory", str(self.kept), str(self.path))
        try:
            self.path.rename(self.kept)
        except OSError as error:
            self._undo.cancel()
            raise FaultNotProven(f"{self.path} could not be moved away: {error}") from error
        after = self._stat(self.kept)
        if self._stat(self.path) is not None or after is None or after.st_ino != before.st_ino:
            raise FaultNotProven(f"{self.path} was moved and is still there")
        return Evidence(
            fault="moved-away",
            seen=f"{self.path.name} is gone from its place; inode {after.st_ino} is kept beside it",
            facts={"kept": str(self.kept), "inode": after.st_ino},
        )

    def release(self) -> Evidence:
        """Put it back. What was made in its place meanwhile is named, then removed."""
        meanwhile = (
            sorted(entry.name for entry in self.path.iterdir()) if self.path.exists() else []
        )
        if self.path.exists():
            shutil.rmtree(self.path)
        self.kept.rename(self.path)
        if self._undo is not None:
            self._undo.cancel()
        inode = self.path.stat().st_ino
        return Evidence(
            fault="moved-back",
            seen=f"inode {inode} is {self.path.name} again",
            facts={"inode": inode, "made_meanwhile": meanwhile},
        )

    def close(self) -> None:
        """Put it back, if it is away."""
        if self.kept.exists():
            self.release()

    def _enter(self) -> object:
        return self.apply()

    @staticmethod
    def _stat(path: Path) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return path.stat()
        return None


class ReadOnly(Block):
    """A directory in which nothing can be written, made or removed.

    `immutable`  root, where the file system has that flag: holds for every user, also for
                 files that are already open (ext4, xfs).
    `chmod`      anybody: holds for users other than root, and not for files already open.
    """

    def __init__(self, directory: Path) -> None:
        """Name the directory; `apply` makes it read-only."""
        self.path = directory.absolute()
        self.mechanism = ""
        self._modes: dict[Path, int] = {}
        self._flagged: list[Path] = []
        self._undo: Undo | None = None

    def apply(self) -> Evidence:
        """No writing from now on; proven by stat and by a write that failed."""
        if not self.path.is_dir():
            raise UsageError(f"there is no directory {self.path} to make read-only")
        self._undo = Undo(
            "/bin/sh", "-c", 'chattr -R -i "$1"; chmod -R u+w "$1"', "undo", str(self.path)
        )
        self.mechanism = "immutable" if self._make_immutable() else "chmod"
        if self.mechanism == "chmod":
            self._take_write_bits()
        code = _write_errno(self.path)
        if code == 0:
            self.release()
            raise FaultNotProven(
                f"{self.path} is still writable by this user, and its file system has no "
                "immutable flag: put the data on ext4 or xfs, or run as an ordinary user"
            )
        return Evidence(
            fault="read-only",
            seen=f"a write in {self.path.name} failed with {errno.errorcode[code]}",
            facts={
                "mechanism": self.mechanism,
                "errno": code,
                "mode": oct(stat.S_IMODE(self.path.stat().st_mode)),
                "paths": len(self._flagged) or len(self._modes),
            },
        )

    def release(self) -> Evidence:
        """Every flag and mode as before; proven by a write that worked."""
        for path in self._flagged:
            _set_immutable(path, on=False)
        for path, mode in self._modes.items():
            with contextlib.suppress(FileNotFoundError):
                path.chmod(mode)
        self._flagged.clear()
        self._modes.clear()
        if self._undo is not None:
            self._undo.cancel()
        code = _write_errno(self.path)
        if code != 0:
            raise FaultNotProven(f"{self.path} was released and a write fails: {os.strerror(code)}")
        return Evidence(fault="read-write", seen=f"a write in {self.path.name} worked")

    def close(self) -> None:
        """Make it writable, if it is not."""
        if self._flagged or self._modes:
            self.release()

    def _enter(self) -> object:
        return self.apply()

    def _make_immutable(self) -> bool:
        """Flag everything in it; False, and nothing changed, where that is not possible."""
        try:
            for path in _contents(self.path):
                _set_immutable(path, on=True)
                self._flagged.append(path)
        except OSError:
            for path in self._flagged:
                _set_immutable(path, on=False)
            self._flagged.clear()
        return bool(self._flagged)

    def _take_write_bits(self) -> None:
        for path in _contents(self.path):
            mode = stat.S_IMODE(path.stat().st_mode)
            self._modes[path] = mode
            path.chmod(mode & ~_WRITE_BITS)


def _contents(directory: Path) -> Iterator[Path]:
    """Regular files and directories below it, and it last: inside before outside."""
    for top, _, names in os.walk(directory, topdown=False):
        for name in names:
            path = Path(top, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path
        yield Path(top)


def _set_immutable(path: Path, *, on: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        flags[0] = flags[0] | _IMMUTABLE if on else flags[0] & ~_IMMUTABLE
        fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    finally:
        os.close(descriptor)


def _write_errno(directory: Path) -> int:
    """Try to make a file there; the errno, or 0 if that worked."""
    probe = directory / f".holdfast-probe-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"x")
    except OSError as error:
        return error.errno or errno.EIO
    probe.unlink()
    return 0
