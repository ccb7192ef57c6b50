"""Looking at a SQLite file from outside: not a byte of it, nor of its neighbours, is changed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.backends.sqlite.address import path_of
from holdfast.backends.sqlite.driver import APPLICATION_ID, SCHEMA_VERSION
from holdfast.backends.sqlite.durability import durability_on
from holdfast.backends.sqlite.index import place as place_of
from holdfast.doctor import books, sqlite_rules
from holdfast.doctor.books import Books
from holdfast.doctor.budget import RECORDS_MAX, SESSIONS_MAX, Budget
from holdfast.doctor.conversation_tables import Column, Table
from holdfast.doctor.finding import Audit, ordered
from holdfast.doctor.sqlite_rules import HEADER_BYTES, Header, SqliteSeen, read_header
from holdfast.doctor.storage import openers, storage_of
from holdfast.errors import EngineUnreachable, UsageError
from holdfast.limits import NUMBER_MAX

_HOUR_MS: Final = 3_600_000
TABLES_MAX: Final = 500
_TABLES: Final = """
    SELECT t.name, (
        SELECT json_group_array(json_array(c.name, c.type,
            c.pk = 1 AND upper(c.type) = 'INTEGER'
            AND NOT EXISTS (SELECT 1 FROM pragma_table_info(t.name) WHERE pk > 1)))
        FROM pragma_table_info(t.name) c
    ), (
        SELECT json_group_array(json(k.names)) FROM (
            SELECT (SELECT json_group_array(name) FROM pragma_index_info(i.name)) AS names
            FROM pragma_index_list(t.name) i WHERE i."unique" AND NOT i.partial
            UNION ALL
            SELECT json_group_array(name) FROM pragma_table_info(t.name) WHERE pk HAVING count(*)
        ) k
    )
    FROM sqlite_schema t WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!'
    LIMIT ?1
"""
_SAMPLE: Final = """
    SELECT id, name, floor FROM sessions
    WHERE namespace = ?1 AND state = 'live' AND (expires_ms IS NULL OR expires_ms > ?2) LIMIT ?3
"""
_NEWEST: Final = """
    SELECT place & 0xffffffff, record FROM messages
    WHERE place > ?1 AND place <= ?2 ORDER BY place DESC LIMIT ?3
"""
_LAST: Final = _NEWEST.replace(", record", "")
_POSITION: Final = "SELECT upto FROM followed WHERE session = ?1 AND model <> ''"
_INDEXED: Final = 2
"""Since this schema there is an index of the log."""


def look(url: str, namespace: bytes, budget: Budget) -> Audit:
    """The audit of one file."""
    path = path_of(url).resolve()
    header, trouble = _identity(path, _header(path))
    is_holdfast = header.application_id == APPLICATION_ID
    files = [path, path.with_name(f"{path.name}-wal")]
    processes, hidden = openers(files)
    seen = SqliteSeen(
        header=header,
        place=storage_of(path),
        processes=processes,
        is_holdfast=is_holdfast,
        tables=None if is_holdfast or trouble else _tables(path),
        standard=sqlite3.sqlite_version_info[:3],
    )
    unseen = ["`synchronous` of the connections of others: it is in no file", *trouble]
    if hidden:
        unseen.append("which processes of other users have the file open")
    opinion, facts = sqlite_rules.judge(seen), _facts(seen)
    found, reason = _books(path, header, namespace, budget) if is_holdfast else (None, "")
    opinion.add(books.judge(found))
    if found is not None:
        facts |= found.facts()
    elif reason:
        unseen.append(f"records of holdfast: {reason}")
    return Audit(
        engine="sqlite",
        where=str(path),
        findings=ordered(opinion.findings),
        sound=opinion.sound(),
        facts=facts,
        unseen=tuple(unseen),
        measures=tuple(found.measures(str(path)) if found is not None else ()),
        ack_durability=durability_on(seen.place.kind) if is_holdfast else None,
    )


def _header(path: Path) -> Header:
    """By SQLite: to open and close the file beside it would drop the locks of this process."""
    try:
        with read_only(path) as connection:
            _, data = connection.read("main", 0, 0, HEADER_BYTES)
    except apsw.Error as error:
        raise EngineUnreachable(f"{path} cannot be read ({error}). Nothing was created") from error
    header = read_header(data)
    if header is None:
        raise UsageError(f"{path} is no SQLite database (or its first page is still in its -wal)")
    return header


def _identity(path: Path, header: Header) -> tuple[Header, list[str]]:
    """The header with what its newer version in the -wal file says, where that can be read."""
    try:
        with read_only(path) as connection:
            application_id = _number(connection, "PRAGMA application_id")
            user_version = _number(connection, "PRAGMA user_version")
    except apsw.Error as error:
        return header, [f"what the -wal file holds: {type(error).__name__}: {error}"]
    return replace(header, application_id=application_id, user_version=user_version), []


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[apsw.Connection]:
    """A connection that writes nowhere.

    Where there is a -wal file, its index is read, not joined; where there is none, nobody
    writes, and the file is taken as it is: an ordinary read-only connection would make both.
    """
    has_log = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro&readonly_shm=1" if has_log else "mode=ro&immutable=1"
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{name}?{how}", flags=flags)
    try:
        yield connection
    finally:
        connection.close()


def _tables(path: Path) -> list[Table] | None:
    """Tables of another program, as far as a conversation would need them."""
    try:
        with read_only(path) as connection:
            rows: list[Any] = connection.execute(_TABLES, (TABLES_MAX,)).fetchall()
    except apsw.Error:
        return None
    return [
        Table(
            name,
            unlogged=False,
            columns=tuple(Column(one, kind.lower().partition("(")[0], bool(counted))
                          for one, kind, counted in json.loads(columns)),
            unique=tuple(tuple(key) for key in json.loads(unique)),
        )
        for name, columns, unique in rows
    ]  # fmt: skip


def _books(
    path: Path, header: Header, namespace: bytes, budget: Budget
) -> tuple[Books | None, str]:
    """A sample of our own store; None and why where it cannot be read."""
    found = Books(header.user_version, SCHEMA_VERSION)
    if found.schema > SCHEMA_VERSION:
        return found, ""
    try:
        with read_only(path) as connection:
            _sample(connection, found, namespace, budget)
    except apsw.Error as error:
        return None, f"{type(error).__name__}: {error}"
    return found, ""


def _sample(connection: apsw.Connection, found: Books, space: bytes, budget: Budget) -> None:
    now_ms = time.time_ns() // 1_000_000
    connection.execute("BEGIN")  # one cut
    expired = "SELECT count(*) FROM sessions WHERE expires_ms <= ?1"
    found.leftovers = _number(connection, expired, now_ms - _HOUR_MS)
    sessions: list[Any] = connection.execute(_SAMPLE, (space, now_ms, SESSIONS_MAX)).fetchall()
    indexed = found.schema >= _INDEXED
    for identity, name, floor in sessions:
        if budget.is_spent:
            break
        bounds = (place_of(identity, floor), place_of(identity, NUMBER_MAX), RECORDS_MAX)
        records: list[Any] = connection.execute(_NEWEST, bounds).fetchall()[::-1]
        seqs = [seq for seq, _ in records]
        if seqs and seqs != list(range(seqs[0], seqs[0] + len(seqs))):
            found.torn.append(f"{name.decode('utf-8', 'backslashreplace')!r} has a gap in {seqs}")
        found.read(name, records)
        position: list[Any] = (
            connection.execute(_POSITION, (identity,)).fetchall() if indexed else []
        )
        for (upto,) in position:
            found.count_lag(seqs[-1] if seqs else floor, floor, upto)


def ends(path: Path, space: bytes) -> list[tuple[bytes, int, int]]:
    """Some logs of our own store: name, floor, and the last number."""
    now_ms = time.time_ns() // 1_000_000
    found: list[tuple[bytes, int, int]] = []
    with read_only(path) as connection:
        connection.execute("BEGIN")  # one cut
        rows: list[Any] = connection.execute(_SAMPLE, (space, now_ms, SESSIONS_MAX)).fetchall()
        for identity, name, floor in rows:
            bounds = (place_of(identity, floor), place_of(identity, NUMBER_MAX), 1)
            last: list[Any] = connection.execute(_LAST, bounds).fetchall()
            found.append((name, floor, last[0][0] if last else floor))
    return found


def _number(connection: apsw.Connection, query: str, *values: int) -> int:
    [(value,)] = connection.execute(query, values).fetchall()
    return int(value)  # type: ignore[arg-type]  # apsw cannot know what a query gives


def _facts(seen: SqliteSeen) -> dict[str, str]:
    header = seen.header
    return {
        "journal_mode": "wal" if header.wal else "rollback (delete, truncate or persist)",
        "synchronous": "full in holdfast's own store; full for a writer that sets nothing",
        "last written by": f"SQLite {sqlite_rules.words(header.writer)}",
        "SQLite of holdfast": apsw.sqlite_lib_version(),
        "SQLite of this Python": sqlite_rules.words(seen.standard),
        "file system": seen.place.kind,
        "open in": ", ".join(f"{one.name} ({one.pid})" for one in seen.processes) or "no process",
        "belongs to": "holdfast" if seen.is_holdfast else "another program",
    }
