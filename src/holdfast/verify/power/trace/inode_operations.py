"""What was done to a directory: operations on inodes, in order. The alphabet of a replay."""

from __future__ import annotations

from dataclasses import dataclass

ROOT = 0
"""The inode of the directory itself."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at a place. `synced` says that the call returned only when they were on the disk."""

    began_ns: int
    at_ns: int
    inode: int
    offset: int
    data: bytes
    synced: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of one file at a place of another, copied by the kernel."""

    began_ns: int
    at_ns: int
    inode: int
    offset: int
    source: int
    source_offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Resize:
    """A file gets a size: what is beyond is gone, what is missing reads as zeros."""

    began_ns: int
    at_ns: int
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Edit:
    """A name in a directory leads to another inode, or (None) to nothing."""

    directory: int
    name: str
    inode: int | None


@dataclass(frozen=True, slots=True)
class Names:
    """Names change, all of them in one step: create, link, rename, remove."""

    began_ns: int
    at_ns: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """What had ended when this began is on the disk when it has ended.

    Of one inode, or (None) of all.
    """

    began_ns: int
    at_ns: int
    inode: int | None


Operation = Write | Copy | Resize | Names | Sync


@dataclass(frozen=True, slots=True)
class Kind:
    """What an inode is, from its beginning to its end."""

    type: str
    """`file`, `directory` or `link`."""
    mode: int = 0o600
    base: str | None = None
    """Its path below the base, where its first content is."""
    owner: tuple[int, int] | None = None
    """User and group, where they are not ours."""
    leads_to: str = ""
    """Of a symbolic link."""
