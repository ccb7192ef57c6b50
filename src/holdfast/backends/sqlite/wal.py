"""The -wal file through a descriptor of our own: are its frames all there?

Only this file of a database may be opened and closed beside SQLite: on the others that would
drop the locks that SQLite holds.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Final

import apsw

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
LOOKS_MAX: Final = 8
NEAR_FRAMES: Final = 64
TAIL_BYTES: Final = 64
UNKNOWN: Final = (0, b"", b"")
COPY_BYTES: Final = 1 << 20

OWN: Final[set[int]] = set()
"""Descriptors of ours, beside those of SQLite."""


class Log:
    """Frames of a -wal file. Every frame repeats the salts of the file's header."""

    def __init__(self, name: str, connection: apsw.Connection) -> None:
        self._descriptor = _open_quietly(name)
        OWN.add(self._descriptor)
        found: list[Any] = connection.execute("PRAGMA page_size").fetchall()
        self._frame_bytes: int = found[0][0] + FRAME_HEADER_BYTES
        self._known = UNKNOWN

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._descriptor >= 0:
            OWN.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def is_file(self, identity: tuple[int, int, int]) -> bool:
        """Whether this is the file that was meant."""
        found = os.fstat(self._descriptor)
        return (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino) == identity

    def continues(self, frames: int) -> bool:
        """Whether a transaction that has just ended is there, directly behind the one before.

        A program that cuts the file takes its end. What is written next leaves a hole there,
        and recovery stops at a hole. False where only a closer look can tell.
        """
        known, salts, tail = self._known
        if not 0 < known < frames <= known + NEAR_FRAMES:
            return False
        size = self._frame_bytes
        found = os.pread(
            self._descriptor, TAIL_BYTES + (frames - known) * size, self._end_of(known) - TAIL_BYTES
        )
        if not found.startswith(tail) or len(found) != TAIL_BYTES + (frames - known) * size:
            return False
        for at in range(TAIL_BYTES + 8, len(found), size):
            if found[at : at + 8] != salts:
                return False
        self._known = (frames, salts, found[-TAIL_BYTES:])
        return True

    def is_whole(self, connection: apsw.Connection) -> bool:
        """Whether all frames that the index knows of are there; slower, and always right.

        Another process may empty the file at any time, once all of it is in the database.
        """
        for _ in range(LOOKS_MAX):
            frames, folded = _frames_by_index(connection)
            if self._holds(frames):
                self._remember(frames)
                return True
            if frames == folded:
                self._known = UNKNOWN
                return True
            if _frames_by_index(connection) == (frames, folded) and not self._holds(frames):
                return False
        return False

    def holds_what_was_known(self) -> bool:
        """The same without the index: is what the last look saw still there?"""
        frames, salts, _ = self._known
        return frames == 0 or salts != self._salts() or self._holds(frames)

    def begins_like(self, name: str) -> bool:
        """Whether a file is not there, is empty, or has the first bytes of this one and no others."""
        try:
            other = open(name, "rb")  # noqa: SIM115, PTH123
        except FileNotFoundError:
            return True
        with other:
            at = 0
            while part := other.read(COPY_BYTES):
                if part != os.pread(self._descriptor, len(part), at):
                    return False
                at += len(part)
        return True

    def copy_to(self, file: BinaryIO) -> None:
        """Everything, synced."""
        at = 0
        while part := os.pread(self._descriptor, COPY_BYTES, at):
            file.write(part)
            at += len(part)
        file.flush()
        os.fsync(file.fileno())

    def _remember(self, frames: int) -> None:
        """What the next look goes by."""
        self._known = (frames, self._salts(), self._tail(frames)) if frames else UNKNOWN

    def _holds(self, frames: int) -> bool:
        known, before, tail = self._known
        salts = self._salts()
        if salts == before and 0 < known <= frames and self._tail(known) != tail:
            return False
        return self._size() >= self._end_of(frames) and all(
            self._frame(at)[8:16] == salts for at in range(1, frames + 1)
        )

    def _tail(self, frames: int) -> bytes:
        return os.pread(self._descriptor, TAIL_BYTES, self._end_of(frames) - TAIL_BYTES)

    def _salts(self) -> bytes:
        return os.pread(self._descriptor, 8, 16)

    def _frame(self, number: int) -> bytes:
        at = self._end_of(number - 1)
        return os.pread(self._descriptor, FRAME_HEADER_BYTES, at)

    def _end_of(self, frames: int) -> int:
        return HEADER_BYTES + frames * self._frame_bytes

    def _size(self) -> int:
        return os.lseek(self._descriptor, 0, os.SEEK_END)


def _open_quietly(name: str) -> int:
    """To note the time of each read would make the next sync write the inode, and slow."""
    try:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME)
    except PermissionError:  # only its owner may ask for that
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)


def _frames_by_index(connection: apsw.Connection) -> tuple[int, int]:
    """How many frames there are, and how many of them are in the database by now."""
    found: list[Any] = connection.execute("PRAGMA wal_checkpoint(NOOP)").fetchall()
    [(_, frames, folded)] = found
    return frames, folded
