"""Opening a database: whose file it is, the settings that durability needs, migrations."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from holdfast.backends.queries import load_migrations
from holdfast.backends.sqlite.durability import check_directory
from holdfast.backends.sqlite.errors import BACKEND, mapped
from holdfast.errors import Damaged, EngineUnreachable, FormatTooNew, HoldfastError, UsageError
from holdfast.linux import sync_directory

APPLICATION_ID: Final = int.from_bytes(b"HOLD")
MIGRATIONS: Final = load_migrations(Path(__file__).with_name("schema"))
SCHEMA_VERSION: Final = len(MIGRATIONS)
PRIVATE: Final = 0o600

_OPEN: Final[weakref.WeakSet[apsw.Connection]] = weakref.WeakSet()
_INHERITED: Final[list[apsw.Connection]] = []
"""Connections of the parent, in the child of a fork; a child that connects closes them first."""


def open_database(path: Path, *, create: bool, busy_timeout_s: float) -> apsw.Connection:
    """A connection that may write, on a database of the current schema.

    Creates or migrates it when needed, safely when several processes do so at once.
    """
    check_directory(path)
    _close_inherited()
    if not create and not path.exists():
        raise EngineUnreachable(
            f"{path} does not exist; nothing was written. It is not created because the URL "
            "says mode=rw, or because it was there before and has vanished",
            operation="connect",
            backend=BACKEND,
        )
    _refuse_emptied(path, create=create)
    if create:
        _create_privately(path)
    try:
        connection = open_connection(path, busy_timeout_s=busy_timeout_s, create=create)
        try:
            _make_ready_in_turn(connection, path, busy_timeout_s, create=create)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise mapped(error, "connect") from error
    return connection


def _create_privately(path: Path) -> None:
    """An empty file that only its owner can read; SQLite gives the files beside it the same mode.

    Made under another name and closed before it gets its own: to close a file that SQLite has
    open elsewhere in this process would drop its locks. Where that fails, SQLite makes it.
    """
    with suppress(OSError, RuntimeError):  # a RuntimeError: links that lead in a circle
        real = path.resolve()
        if real.exists():
            return
        made = real.with_name(f"{real.name}.{os.urandom(8).hex()}")
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE))
        try:
            real.hardlink_to(made)
        finally:
            made.unlink()


def _refuse_emptied(path: Path, *, create: bool) -> None:
    """A database of no bytes is a new one, unless something says that it was there before.

    SQLite itself would delete the -wal file of such a database, with all that is in it.
    """
    log_file = Path(f"{path.resolve()}-wal")
    # In this order: a process that creates the file just now writes to it before there is a log.
    was_there = not create or (log_file.exists() and log_file.stat().st_size > 0)
    if was_there and path.exists() and path.stat().st_size == 0:
        raise _error(
            Damaged,
            f"{path} is empty, and it was not before: another program cut it short. Nothing was written. "
            "Keep a copy of it and of the -wal file beside it, then restore a backup",
        )


def close_as_it_is(connection: apsw.Connection) -> None:
    """Close it without folding the -wal file in: the names may lead to other files by now."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def _inherit() -> None:
    """In the child of a fork, which inherits open files and not the locks on them.

    SQLite believes in those locks. A connection that the child let go of would fold in and
    delete whatever -wal file has the name by then, so it never lets go: not even at its end.
    """
    for connection in _OPEN:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        _INHERITED.append(connection)
    _OPEN.clear()


os.register_at_fork(after_in_child=_inherit)


def _close_inherited() -> None:
    """SQLite would share their -shm file, and the locks that are not there, with a new one.

    Not at once in each child: a thread of the parent may have held any lock of SQLite's.
    """
    while _INHERITED:
        try:
            with suppress(apsw.ConnectionClosedError):  # the parent had closed it
                _INHERITED[-1].config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                _INHERITED[-1].close(force=True)
        except apsw.Error as error:
            raise _error(
                EngineUnreachable,
                "this process was forked while a thread of its parent was using a SQLite store "
                f"({error}). Nothing was written. Connect in a process that is spawned instead",
            ) from error
        _INHERITED.pop()


def check_whole(connection: apsw.Connection, path: Path) -> None:
    """Raise if pages are missing or make no sense; takes as long as reading the file."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchall()
    except apsw.Error as error:
        raise mapped(error, "connect") from error
    if found != [("ok",)]:
        raise _error(
            Damaged,
            f"{path} is damaged ({found[0][0]}). Nothing was written. Keep a copy of it and of the "
            "-wal file beside it, then restore a backup",
        )


def open_connection(path: Path, *, busy_timeout_s: float, create: bool = False) -> apsw.Connection:
    """A connection with our settings; it neither creates tables nor checks them."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    connection = apsw.Connection(str(path), flags=flags)
    _OPEN.add(connection)
    connection.set_busy_timeout(round(busy_timeout_s * 1000))
    connection.execute(
        "PRAGMA synchronous=FULL; PRAGMA secure_delete=ON; PRAGMA trusted_schema=OFF; "
        "PRAGMA cell_size_check=ON"
    ).fetchall()  # apsw stops at the first row until it is asked for the next
    return connection


def _make_ready_in_turn(
    connection: apsw.Connection, path: Path, busy_timeout_s: float, *, create: bool
) -> None:
    """Several processes may make the file at once; SQLite itself does not wait at every step.

    The change to WAL asks for a lock while it holds another, which is refused at once.
    """
    deadline_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            return _make_ready(connection, path, create=create)
        except apsw.BusyError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(0.001)


def _make_ready(connection: apsw.Connection, path: Path, *, create: bool) -> None:
    # One cut: between two reads of its own, another process may have made our tables.
    connection.execute("BEGIN")
    try:
        fresh = _whose(connection, path) == 0
    finally:
        connection.execute("ROLLBACK")
    if fresh and not create:
        raise _error(
            Damaged,
            f"{path} is there and has no tables: another program emptied it, or deleted the -wal file "
            "that held them. Nothing was written. Restore a backup",
        )
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    _migrate(connection, path)
    # Begins the -wal file, whose place is watched from now on.
    connection.execute("SELECT count(*) FROM sessions WHERE id = 0").fetchall()
    if fresh:
        sync_directory(path.parent)


def _whose(connection: apsw.Connection, path: Path) -> int:
    """The schema version of a database of ours, 0 of an empty one; raises for a stranger's."""
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    [(tables,)] = connection.execute("SELECT count(*) FROM sqlite_schema")
    if application == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise _error(
            UsageError,
            f"{path} is a database of another program (it has {tables} table(s) that are not "
            "ours). Nothing was written. Name a file of its own for the memory",
        )
    if version > SCHEMA_VERSION:
        raise _error(
            FormatTooNew,
            f"{path} has schema version {version}, from a later release; this one knows up to "
            f"{SCHEMA_VERSION}. Nothing was written. Upgrade holdfast",
        )
    return version


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the schema up to date in one transaction; the second process finds it done."""
    if _pragma(connection, "user_version") == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for version in range(_whose(connection, path) + 1, SCHEMA_VERSION + 1):
            connection.execute(MIGRATIONS[version - 1]).fetchall()
            connection.execute(f"PRAGMA user_version={version}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _pragma(connection: apsw.Connection, name: str) -> int:
    [(value,)] = connection.execute(f"PRAGMA {name}")
    return int(value)


def _error(kind: type[HoldfastError], words: str) -> HoldfastError:
    return kind(words, operation="connect", backend=BACKEND)
