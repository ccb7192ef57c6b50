"""Whether the names of an open database still lead to the very files that are open.

A file that is unlinked, replaced or moved stays writable for a process that holds it open, and what is
written then is lost with the process. A file is its device and inode; a name is not enough.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import struct
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from holdfast.backends.sqlite.errors import BACKEND
from holdfast.backends.sqlite.wal import OWN, Log
from holdfast.errors import Damaged, EngineUnreachable
from holdfast.linux import open_files

RECENT_S: Final = 0.01
DELETED: Final = " (deleted)"
TICK_NS: Final = 50_000_000
UNSETTLED: Final = (0, 0, 0)

# Times are asked for of the database only: Linux keeps exact ones for a file whose times were
# asked for, which made each write to the -wal file about a third slower.
_IDENTITY: Final = ctypes.c_uint(0x100 | 0x200)  # STATX_INO | STATX_SIZE
_IDENTITY_AND_TIME: Final = ctypes.c_uint(0x100 | 0x200 | 0x40)  # and STATX_MTIME
_FIELDS: Final = struct.Struct("=32xQQ64xqI12xII")
_HERE: Final = ctypes.c_int(-100)  # AT_FDCWD: the names are absolute
_NO_FLAGS: Final = ctypes.c_int(0)
_Buffer: Final = ctypes.c_char * 256
# It keeps the interpreter lock, which is dearer to win back than a name in memory is to look up.
_statx: Final[Any] = getattr(ctypes.PyDLL(None), "statx", None)

Identity = tuple[int, int, int]


class Seen(NamedTuple):
    """What a name leads to."""

    identity: Identity
    size: int
    changed: tuple[int, int]


def look_up(name: bytes, *, with_time: bool = False) -> Seen | None:
    """The file that a name leads to, or None; `changed` is only right if it was asked for."""
    if _statx is None:  # a C library without it
        return _look_up_slowly(name)
    buffer = _Buffer()
    mask = _IDENTITY_AND_TIME if with_time else _IDENTITY
    if _statx(_HERE, ctypes.c_char_p(name), _NO_FLAGS, mask, buffer):
        return None
    inode, size, second, nanosecond, major, minor = _FIELDS.unpack_from(buffer)
    return Seen((major, minor, inode), size, (second, nanosecond))


def _look_up_slowly(name: bytes | int) -> Seen | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - a name in bytes, or a descriptor
    except OSError:
        return None
    identity = (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino)
    return Seen(identity, found.st_size, divmod(found.st_mtime_ns, 10**9))


class File(enum.IntEnum):
    """The files of a database."""

    DATABASE = 0
    LOG = 1
    INDEX = 2


class Harm(NamedTuple):
    """What an outsider did to a file."""

    file: File
    name: str
    what: str  # "is gone", "is another file now", "was cut short"

    @property
    def gone(self) -> bool:
        """Whether the name leads nowhere."""
        return self.what == GONE

    @property
    def cut(self) -> bool:
        """Whether it is the same file, with less in it."""
        return self.what == CUT

    def __str__(self) -> str:
        """As the beginning of a sentence."""
        return f"{self.name} {self.what}"


GONE: Final = "is gone: it was moved or deleted"
REPLACED: Final = "is no longer the file that this store opened: another one is in its place"
CUT: Final = "was cut short by another program"


class Watch:
    """The files that a connection has open, and whether their names still lead to them."""

    def __init__(self, path: Path, connection: apsw.Connection, *, exact_times: bool) -> None:
        real = connection.filename  # SQLite keeps the others beside the file that a link leads to
        self.names = (str(path), f"{real}-wal", f"{real}-shm")
        self._names = tuple(os.fsencode(name) for name in self.names)
        self.database, self.log_file, self.index = self._stable()
        self.log = Log(self.names[File.LOG], connection)
        if not self.log.is_file(self.log_file.identity):
            self.log.close()
            raise _changed(self.names[File.LOG])
        if not self.log.is_whole(connection):
            self.log.close()
            raise Damaged(
                f"{self.names[File.LOG]} is shorter than its index says: it was deleted or cut "
                "while another process had it open. Nothing was written. End every process that "
                "has the database open, then open it again",
                backend=BACKEND,
            )
        self._seen_s = self._looked_s = -RECENT_S
        # Not to be read, so that to close it drops no lock; its own move is a change of it, too.
        self._folder = os.open(Path(self.names[File.LOG]).parent, os.O_PATH | os.O_CLOEXEC)
        self._exact = exact_times
        self._settled = UNSETTLED

    def _stable(self) -> tuple[Seen, Seen, Seen]:
        """What the names lead to, once that is what this process has open, and nothing else."""
        opened = _open_in_this_process((os.path.realpath(self.names[0]), *self.names[1:]))
        seen = []
        for name in self.names:
            found = look_up(os.fsencode(name), with_time=True)
            expected = opened.get(os.path.realpath(name), set())
            # A name that no open file has says nothing: the kernel may know it by another.
            if found is None or (expected and expected != {found.identity}):
                raise _changed(name)
            seen.append(found)
        database, log_file, index = seen
        return database, log_file, index

    def harm(self) -> Harm | None:
        """What has happened to a file of the database, or None if all is well; looked up now."""
        changed = self._folder_changed()
        database = look_up(self._names[0], with_time=True)
        if database is None or database.identity != self.database.identity:
            return self._harmed(File.DATABASE, database)
        log_file = look_up(self._names[1])
        if log_file is None or log_file.identity != self.log_file.identity:
            return self._harmed(File.LOG, log_file)
        index = look_up(self._names[2])
        if index is None or index.identity != self.index.identity:
            return self._harmed(File.INDEX, index)
        if index.size < self.index.size:
            return self._harmed(File.INDEX, index)
        if database.size < self.database.size:
            return self._harmed(File.DATABASE, database)
        self.database, self.index = database, index
        self._seen_s = self._looked_s = time.monotonic()
        # Two changes within one tick of the kernel's clock can have the same time.
        aged = changed is not None and time.time_ns() - changed[0] > TICK_NS
        self._settled = changed if changed and aged and self._exact else UNSETTLED
        return None

    def harm_now(self) -> Harm | None:
        """The same around each write, mostly by one look: a folder has a time of its last change.

        While that stands still, every name in it leads where it led. It tells neither that a
        file was cut short nor that a folder further up was moved, with all that is in it, so
        every few milliseconds all is looked at nevertheless.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s < RECENT_S and self._folder_changed() == self._settled:
            self._seen_s = now_s
            return None
        return self.harm()

    def harm_lately(self) -> Harm | None:
        """The same for readers, who need not look when all was well a moment ago."""
        return None if time.monotonic() - self._seen_s < RECENT_S else self.harm()

    def _folder_changed(self) -> tuple[int, int, int] | None:
        try:
            found = os.fstat(self._folder)
        except OSError:
            return None
        return found.st_ctime_ns, found.st_ino, found.st_dev

    def log_harm(self, connection: apsw.Connection, frames: int) -> Harm | None:
        """Whether the frames of a commit, and the commit before it, are in the -wal file."""
        if self.log.continues(frames) or self.log.is_whole(connection):
            return None
        return self._harmed(File.LOG, self.log_file)

    def named_log(self) -> Identity | None:
        """The file that the name of the -wal file leads to now."""
        found = look_up(self._names[File.LOG])
        return None if found is None else found.identity

    def close(self) -> None:
        """Let go of our own descriptors."""
        self.log.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _harmed(self, file: File, found: Seen | None) -> Harm:
        self._seen_s = self._looked_s = -RECENT_S
        expected = (self.database, self.log_file, self.index)[file]
        same = found is not None and found.identity == expected.identity
        return Harm(file, self.names[file], CUT if same else REPLACED if found else GONE)


def _open_in_this_process(names: tuple[str, ...]) -> dict[str, set[Identity]]:
    """The files that this process has open under some names, deleted ones too.

    All connections of a process share one -shm file, so one that still holds a deleted file
    would make a new connection use it as well.
    """
    opened: dict[str, set[Identity]] = {}
    with contextlib.suppress(PermissionError):
        for descriptor, seen in open_files(os.getpid()):
            name = seen.removesuffix(DELETED)
            if descriptor in OWN or name not in names:
                continue
            if (found := _look_up_slowly(descriptor)) is not None:
                opened.setdefault(name, set()).add(found.identity)
    return opened


def _changed(name: str) -> EngineUnreachable:
    return EngineUnreachable(
        f"{name} was deleted or replaced while it was being opened, or another store of this "
        "process still has a deleted one open. Nothing was written. Try again; if that does not "
        "help, close the other stores of this process on this file",
        operation="connect",
        backend=BACKEND,
    )
