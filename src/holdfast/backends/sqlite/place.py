"""Where the file is: on what file system, and whether it is still the one that was opened."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.errors import EngineUnreachable, Refused
from holdfast.model import Durability

MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)
RECENT_S: Final = 0.01
CONTAINER_FILE_SYSTEMS: Final = frozenset({"overlay", "aufs"})


def file_system(path: Path, mountinfo: Iterable[str]) -> str:
    """The type of the file system that holds a path, from the lines of /proc/self/mountinfo."""
    best, kind = -1, "unknown"
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        mounted_on = before.split()[4].encode().decode("unicode_escape")
        # Of two mounts on one point the later hides the earlier, hence >=.
        if path.is_relative_to(mounted_on) and len(mounted_on) >= best:
            best, kind = len(mounted_on), after.split()[0]
    return kind


def file_system_here(path: Path) -> str:
    """The type of the file system that holds a path; `unknown` where /proc does not say."""
    try:
        with Path("/proc/self/mountinfo").open(encoding="utf-8") as lines:
            return file_system(path, lines)
    except OSError:
        return "unknown"


def durability_on(kind: str) -> Durability:
    """What a synced file survives on such a file system."""
    return Durability.PROCESS if kind in MEMORY_FILE_SYSTEMS else Durability.DISK


def check_directory(path: Path) -> None:
    """Raise unless the directory of a database is there and can be written to."""
    directory = path.parent
    if not directory.is_dir():
        raise EngineUnreachable(
            f"the directory {directory} does not exist; nothing was written. Create it, or mount "
            "the volume that should be there (it is not created for you: a data directory that "
            "vanished must not come back empty)"
        )
    if path.is_dir():
        raise EngineUnreachable(f"{path} is a directory, not a file; nothing was written")
    if not os.access(directory, os.W_OK | os.X_OK) or _is_read_only_mount(directory):
        raise Refused(
            f"the directory {directory} is read-only for this process; nothing can be written. "
            "Make it writable: the log needs to keep its -wal file there"
        )


def _is_read_only_mount(directory: Path) -> bool:
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)


class Watch:
    """Whether the files of an open database are still where they were opened.

    A file that is unlinked or moved stays writable for whoever holds it open, and what is
    written then is lost with the process. So before each write the names are looked up
    again: they must still lead to the files that were opened.
    """

    def __init__(self, path: Path) -> None:
        found = path.stat()
        self._path = str(path)
        self._log = f"{path}-wal"
        self._device, self._inode = found.st_dev, found.st_ino
        self._seen_s = -RECENT_S

    def missing(self) -> str | None:
        """The name that no longer leads to its file, or None if all is well.

        Each write asks, so mostly only whether the database's name is there: that notices a
        directory that was moved or removed. Every few milliseconds it looks more closely.
        """
        now_s = time.monotonic()
        if now_s - self._seen_s < RECENT_S and os.access(self._path, os.F_OK):
            return None
        gone = self._look()
        self._seen_s = -RECENT_S if gone else now_s
        return gone

    def missing_lately(self) -> str | None:
        """The same for readers, who need not look at all when all was well a moment ago."""
        return None if time.monotonic() - self._seen_s < RECENT_S else self.missing()

    def _look(self) -> str | None:
        """Is the database the same file, and is its -wal file there?

        Of the -wal file only the name is looked up: a stat of it between writes was seen
        to make each of them about a third slower.
        """
        try:
            found = os.stat(self._path)  # noqa: PTH116 - Path.stat() costs twice as much
        except OSError:
            return self._path
        if found.st_ino != self._inode or found.st_dev != self._device:
            return self._path
        return None if os.access(self._log, os.F_OK) else self._log
