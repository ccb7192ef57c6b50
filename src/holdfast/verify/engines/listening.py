"""Whose port is it? An answer on a port proves nothing while another may hold that port."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from holdfast.verify.engines import reaper

_LISTEN: Final = "0A"


def listens(pid: int, port: int) -> bool:
    """Whether the process, or one below it, has a listening socket on that port."""
    wanted = {f"socket:[{inode}]" for inode in listening_inodes(port)}
    return any(wanted & open_names(each) for each in reaper.descendants([pid]))


def listening_inodes(port: int) -> set[str]:
    """The sockets that listen on a port, whoever has them."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def open_names(pid: int) -> set[str]:
    """The names of what a process has open; none where we may not look."""
    targets = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                targets.add(os.readlink(entry.path))  # noqa: PTH115 - `socket:[n]` is no path
    return targets
