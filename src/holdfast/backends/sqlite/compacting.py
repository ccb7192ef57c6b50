"""Giving the room of what was removed back to the disk: SQLite itself only uses it again."""

from __future__ import annotations

from pathlib import Path

import apsw

from holdfast.backends.sqlite.driver import open_database
from holdfast.backends.sqlite.errors import BACKEND, mapped
from holdfast.errors import EngineUnreachable

OPERATION = "compact"


def compact(path: Path, *, busy_timeout_s: float = 5.0) -> tuple[int, int]:
    """Rewrite a database that nobody has open; its bytes before and after.

    A kill leaves it as it was, or done. Others must not have it open: they would take a file that
    shrinks for one that another program has cut short.
    """
    connection = open_database(path, create=False, busy_timeout_s=busy_timeout_s)
    before = path.stat().st_size
    try:
        _rewrite(connection, path)
    except apsw.Error as error:
        raise mapped(error, OPERATION) from error
    finally:
        connection.close()
    return before, path.stat().st_size


def _rewrite(connection: apsw.Connection, path: Path) -> None:
    connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
    try:
        # Only a sole connection can leave WAL; from then on this one keeps the lock.
        [(mode,)] = connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        if mode == "delete":
            connection.execute("BEGIN EXCLUSIVE; COMMIT").fetchall()
            [(mode,)] = connection.execute("PRAGMA journal_mode").fetchall()
    except apsw.BusyError:
        mode = "busy"
    if mode != "delete":
        raise EngineUnreachable(
            f"another store has {path} open. Nothing was changed. Close it, and compact again",
            operation=OPERATION,
            backend=BACKEND,
        )
    connection.execute("VACUUM").fetchall()
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
