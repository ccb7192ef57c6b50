"""The directory of a store that has no engine: a link to whichever disk the check has for it.

`Target(data=…)` names where a store keeps its files. While it is checked that name is a link, to
a directory whose power can be cut and whose disk can fail; at the end it is what it was before.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holdfast.verify.blocks import Block
from holdfast.verify.undo import Undo


def why_not_ours(data: Path) -> str | None:
    """Why a check may not use this directory; asked before the store is opened there."""
    if data.is_symlink() or (data.exists() and not data.is_dir()):
        return f"Target(data={str(data)!r}) is no directory"
    if data.is_dir() and any(data.iterdir()):
        return (
            f"Target(data={str(data)!r}) is not empty: the check cuts the power there, and removes "
            "what it finds at the end; give it a directory of its own"
        )
    return None


class DataLink(Block):
    """The name as a link, from now until it is closed; what was made there meanwhile goes."""

    def __init__(self, data: Path, to: Path) -> None:
        self._data = data
        shutil.rmtree(data, ignore_errors=True)
        restore = 'rm -f "$0" && mkdir -p "$0"'
        self._undo = Undo("/bin/sh", "-c", restore, str(data))
        point(data, to)

    def close(self) -> None:
        """An empty directory again."""
        self._data.unlink(missing_ok=True)
        self._data.mkdir(parents=True, exist_ok=True)
        self._undo.cancel()


def point(data: Path, to: Path) -> None:
    """Let the link name another directory, in one step."""
    if data.is_symlink() and data.readlink() == to:
        return
    made = data.with_name(f"{data.name}.{os.getpid()}")
    made.symlink_to(to, target_is_directory=True)
    made.replace(data)
