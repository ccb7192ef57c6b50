"""What the kernel says about mounts: the one reader of /proc/PID/mountinfo; and names that last.

The reaper has its own reader, because it starts alone without this package.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where, of which type, and from what."""

    point: Path
    kind: str
    source: str


def parse_mounts(lines: Iterable[str]) -> Iterator[Mount]:
    """The mounts of a mountinfo, in the order of mounting."""
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, source = after.split()[:2]
        # The kernel writes a space, tab, newline or backslash in a path as its octal number.
        point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before.split()[4])
        yield Mount(Path(point), kind, source)


def mounts(pid: int | None = None) -> list[Mount]:
    """The mounts that this process sees, or that one; none where /proc does not say."""
    table = Path("/proc", "self" if pid is None else str(pid), "mountinfo")
    with contextlib.suppress(OSError):
        # A path need not be UTF-8; `Path` has the other bytes as surrogates too.
        return list(parse_mounts(table.read_text("utf-8", "surrogateescape").split("\n")[:-1]))
    return []


def mount_of(path: Path, among: Iterable[Mount]) -> Mount | None:
    """The mount that holds an absolute path; None where none does."""
    holding = [mount for mount in among if path.is_relative_to(mount.point)]
    # Of two mounts on one point the later hides the earlier, so the last of the longest counts.
    return max(reversed(holding), key=lambda mount: len(str(mount.point)), default=None)


def file_system_of(path: Path, pid: int | None = None) -> str:
    """The type of the file system that holds a path, such as `ext4`; `unknown` if /proc is mute."""
    # Links of this process are known here; another one may see other folders under those names.
    mount = mount_of(path.resolve() if pid is None else path, mounts(pid))
    return "unknown" if mount is None else mount.kind


def sync_directory(directory: Path) -> None:
    """The name of a new file must survive a power cut as well as its contents."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
