"""What the index of a log holds in this file: vectors, sketches of them, words.

Searching compares sketches of all, then the vectors of the nearest: sqlite-vec as it comes
takes a hundred milliseconds for a hundred thousand whole vectors, and a tenth of that for sketches.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast import limits
from holdfast.backends.queries import load_queries
from holdfast.errors import UsageError
from holdfast.recall.index_commands import (
    CANDIDATES_MAX,
    POSTINGS_MAX,
    Candidate,
    Extend,
    Position,
    Search,
)
from holdfast.recall.words import choose, rarity

SQL: Final = load_queries(Path(__file__).with_name("index.sql"))
TABLES: Final = Path(__file__).with_name("schema").joinpath("0002_recall.sql").read_text("utf-8")
NAMES: Final = ("followed", "vectors", "sketches", "words")
"""`followed` has the positions of indexes; the name is that of the file format."""
_NUMBER_BITS: Final = 32
CACHE_KIB: Final = 32 * 1024
WORDS_USUAL: Final = 16
"""Words that an entry has, about."""


def is_missing(error: BaseException) -> bool:
    """Whether a table of the index is gone: dropped by another program, or left out of a copy."""
    return isinstance(error, apsw.SQLError) and any(
        str(error).endswith((f"no such table: {name}", f"no such table: main.{name}"))
        for name in NAMES
    )


def remake(connection: apsw.Connection) -> None:
    """Empty tables, in one transaction, if one is missing; every index is then built from its log."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        there = connection.execute(SQL["tables"]).fetchall()
        if len(there) < len(NAMES):  # otherwise another process has done it
            for name in NAMES:
                connection.execute(f"DROP TABLE IF EXISTS {name}").fetchall()
            connection.execute(TABLES).fetchall()
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def place(session: int, seq: int) -> int:
    """Where a message stands in the one b-tree of all messages."""
    return (session << _NUMBER_BITS) + seq


def index_position(execute: Any, session: int, floor: int) -> Position:
    """How far the index of a log is. It goes, or is cut, when the floor rises: the floor is its own."""
    found = execute(SQL["read_position"], (session,)).fetchall()
    for model, upto in found:
        return Position(model, upto, floor)
    return Position()


def add(connection: apsw.Connection, session: int, command: Extend) -> None:
    """Add entries, and note how far the index is now."""
    many = connection.executemany
    here = [(place(session, entry.seq), entry) for entry in command.entries]
    many(SQL["add_vector"], [(at, entry.vector) for at, entry in here])
    many(SQL["add_sketch"], [(at, entry.sketch) for at, entry in here])
    words = [
        (session, term, entry.seq, weight)
        for entry in command.entries
        for term, weight in entry.words.items()
    ]
    many(SQL["add_word"], sorted(words))  # in the order of the b-tree
    connection.execute(SQL["write_position"], (session, command.model, command.upto))


def remove(execute: Any, session: int) -> None:
    """Drop the index of a log, if there is one."""
    if execute(SQL["remove_position"], (session,)).fetchall():
        bounds = (place(session, 0), place(session, limits.NUMBER_MAX))
        execute(SQL["remove_vectors"], bounds)
        execute(SQL["remove_sketches"], bounds)
        execute(SQL["remove_words"], (session,))


def remove_entry(execute: Any, session: int, seq: int) -> None:
    """Drop what the index has of one record."""
    at = place(session, seq)
    execute(SQL["remove_vectors"], (at, at))
    execute(SQL["remove_sketches"], (at, at))
    execute(SQL["remove_words_of"], (session, seq))


def cut(execute: Any, session: int, floor: int) -> None:
    """Drop what the index has of records up to a number; it stays where it is."""
    if execute(SQL["read_position"], (session,)).fetchall():
        bounds = (place(session, 0), place(session, floor))
        execute(SQL["remove_vectors"], bounds)
        execute(SQL["remove_sketches"], bounds)
        execute(SQL["cut_words"], (session, floor))


def sweep(connection: apsw.Connection, session: int, entries_max: int) -> bool:
    """Free a bounded part of the index of a log that has expired; whether nothing is left."""
    if not connection.execute(SQL["disown"], (session,)).fetchall():
        return True
    bounds = (place(session, 0), place(session, limits.NUMBER_MAX), entries_max)
    left = False
    for name in ("sweep_vectors", "sweep_sketches"):
        connection.execute(SQL[name], bounds)
        left |= connection.changes() == entries_max
    words_max = WORDS_USUAL * entries_max
    connection.execute(SQL["sweep_words"], (session, words_max))
    left |= connection.changes() == words_max
    if not left:
        connection.execute(SQL["remove_position"], (session,)).fetchall()
    return not left


def find(connection: apsw.Connection, session: int, count: int, command: Search) -> list[Candidate]:
    """The nearest, and those that have the words, each with both scores."""
    _load_extension(connection)
    words = _by_words(connection, session, count, command)
    values = (
        place(session, 0),
        place(session, limits.NUMBER_MAX),
        command.sketch,
        max(CANDIDATES_MAX, command.limit),
        command.vector,
        json.dumps([place(session, seq) for seq in words]),
    )
    found: list[Any] = connection.execute(SQL["near"], values).fetchall()
    return [
        Candidate(seq, near, words.get(seq, 0.0))
        for at, (seq, near) in enumerate(found)
        if at < command.limit or seq in words
    ]


def _by_words(
    connection: apsw.Connection, session: int, count: int, command: Search
) -> dict[int, float]:
    counts = [
        int(found)
        for term in command.words
        for (found,) in connection.execute(SQL["word_count"], (session, term))
    ]
    asked = [(command.words[at], rarity(counts[at], count)) for at in choose(counts, POSTINGS_MAX)]
    if not asked:
        return {}
    found: list[Any] = connection.execute(
        SQL["by_words"], (session, json.dumps(asked), command.limit)
    ).fetchall()
    return dict(found)


def _load_extension(connection: apsw.Connection) -> None:
    """Once a connection; the statement fails where it has not been done."""
    try:
        connection.execute("SELECT vec_version()").fetchall()
    except apsw.SQLError:
        try:
            import sqlite_vec  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise UsageError(
                f"recall on SQLite needs sqlite-vec, which is not installed ({error}). "
                "Run: pip install 'holdfast[recall]'"
            ) from error
        connection.enable_load_extension(True)
        try:
            connection.load_extension(sqlite_vec.loadable_path())
        finally:
            connection.enable_load_extension(False)
        # At most; the index of a large log is looked at as a whole, again and again.
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}").fetchall()
