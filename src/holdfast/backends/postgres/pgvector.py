"""Whether the server compares vectors itself: with pgvector, where it has it and we may use it.

Nobody has to have it. What goes wrong here leaves everything as it was, and the client compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import psycopg

from holdfast.backends.postgres.driver import Link
from holdfast.backends.postgres.statements import SQL as COMMON
from holdfast.backends.postgres.statements import in_schema
from holdfast.backends.queries import load_queries

SQL: Final = load_queries(Path(__file__).with_name("pgvector.sql"))
MAKE_TIMEOUT_S: Final = 5.0
"""How long a connect waits for others before it goes without."""


def offer(link: Link, schema: str) -> str | None:
    """Where the types of pgvector are, if the server is to be asked; None: it is not.

    The first one who may do so makes what it takes: the extension, and a copy of the vectors in
    its type, which is filled as logs are indexed and searched.
    """
    try:
        types, available, whole, readable = _state(link, schema)
        if not whole and (types or available):
            link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            with link.transaction():
                _make(link, schema)
            types, _, whole, readable = _state(link, schema)
    except psycopg.Error:
        return None
    return types.replace("%", "%%") if types and whole and readable else None


def _state(link: Link, schema: str) -> tuple[Any, ...]:
    [row] = link.execute(in_schema(SQL["state"], schema)).fetchall()
    found: tuple[Any, ...] = row
    return found


def _make(link: Link, schema: str) -> None:
    """In one transaction, under a lock: the second process finds it done."""
    link.execute(COMMON["migration_lock"].encode(), (str(round(MAKE_TIMEOUT_S * 1000)),))
    link.execute(SQL["extension"].encode())
    types, _, whole, _ = _state(link, schema)
    if not whole:
        link.execute(in_schema(SQL["make"], schema, {"{vector}": types}))
