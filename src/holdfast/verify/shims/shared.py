"""Our end of the small shared file through which a library is steered."""

from __future__ import annotations

import mmap
from pathlib import Path


def shared_file(path: Path, size_bytes: int, *, writable: bool = False) -> mmap.mmap:
    """A new file of zeros, mapped here; other users may read it, and where asked, write it."""
    with path.open("wb+") as file:
        file.truncate(size_bytes)
        shared = mmap.mmap(file.fileno(), size_bytes)
    path.chmod(0o666 if writable else 0o644)
    return shared
