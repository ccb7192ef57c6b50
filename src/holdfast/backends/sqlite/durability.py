"""Where the file is: on what file system, and what that means for an ack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.backends.sqlite.errors import BACKEND
from holdfast.errors import EngineUnreachable, Refused
from holdfast.model import Durability

MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
)
EXACT_FILE_SYSTEMS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs"})
"""Here a change of a folder is seen at once, in its time; others may remember an old one."""
CONTAINER_FILE_SYSTEMS: Final = frozenset({"overlay", "aufs"})


def durability_on(kind: str) -> Durability:
    """What a synced file survives on such a file system."""
    return Durability.PROCESS if kind in MEMORY_FILE_SYSTEMS else Durability.DISK


class SqliteSetup:
    """What the place of the file means for what an ack survives."""

    name = BACKEND
    path: Path
    file_system: str
    durability: Durability

    def weakness(self, require: Durability) -> str:
        """Why more than `durability` cannot be kept."""
        if require is Durability.REPLICA:
            return "SQLite has no replicas. Use PostgreSQL or Redis for that"
        return (
            f"{self.path.parent} is on {self.file_system}, which is memory and gone at power loss. "
            "Move the file to a disk, or say require=Durability.PROCESS"
        )

    def risk(self) -> str | None:
        """A container's own layer goes with the container."""
        if self.file_system not in CONTAINER_FILE_SYSTEMS:
            return None
        return (
            f"{self.path} is on {self.file_system}, the writable layer of a container: it is "
            "removed together with the container. Mount a volume for the data directory"
        )


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
