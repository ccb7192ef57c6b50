"""SQL lives in files: `-- name: read_session` begins a query, its comments stay with it."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(package: str, filename: str = "queries.sql") -> dict[str, str]:
    """Every named query of a file in a package."""
    _, *parts = _NAME.split(files(package).joinpath(filename).read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def load_migrations(package: str, folder: str = "schema") -> list[str]:
    """The migrations of a backend in order; the n-th leads to schema version n, from 1."""
    found = sorted(
        (file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql")),
        key=lambda file: file.name,
    )
    return [file.read_text("utf-8") for file in found]
