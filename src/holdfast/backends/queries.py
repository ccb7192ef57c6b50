"""SQL lives in files: `-- name: read_session` begins a query, its comments stay with it."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(file: Path) -> dict[str, str]:
    """Every named query of a file."""
    _, *parts = _NAME.split(file.read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def load_migrations(folder: Path) -> list[str]:
    """The migrations of a backend in order; the n-th leads to schema version n, from 1."""
    return [file.read_text("utf-8") for file in sorted(folder.glob("*.sql"))]
