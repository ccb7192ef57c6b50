"""The index of a log in PostgreSQL: statements and replies. Pure.

With pgvector the server compares all vectors. Without, it chooses candidates by their sketches and
words, and their vectors are compared here.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, Final

from holdfast.backends.postgres.statements import Rows, Statement, Statements
from holdfast.backends.queries import load_queries
from holdfast.commands import Command, Derive, ReadNumbers, sublogs_of
from holdfast.recall.index_commands import (
    CANDIDATES_MAX,
    POSTINGS_MAX,
    Candidate,
    Extend,
    Position,
    ReadPosition,
    Search,
    nearest,
)

_PARTS: Final = load_queries(Path(__file__).with_name("index.sql"))
SQL: Final = {name: text.replace("{worded}", _PARTS["worded"]) for name, text in _PARTS.items()}
NEAR_BATCH: Final = 1000
"""Entries from before pgvector that one recall copies for it; about a tenth of a second's work."""
NEAR_LOCK_TIMEOUT_MS: Final = 100
NEAR_DIMENSION_MAX: Final = 16_000
"""Of pgvector's halfvec."""


class IndexStatements:
    """Statements on the index, and on the logs beside a session."""

    def __init__(self, statements: Statements, vector_types: str | None) -> None:
        constants = {
            "{postings_max}": str(POSTINGS_MAX),
            "{vector}": vector_types or "",
            "{near_batch}": str(NEAR_BATCH),
            "{near_lock_timeout_ms}": str(NEAR_LOCK_TIMEOUT_MS),
        }
        self._sql = statements.prepared(SQL, constants)

    def read_numbers(self, command: ReadNumbers) -> Statement:
        """See `ReadNumbers`."""
        values = (command.session, list(command.numbers))
        return Statement(self._sql["read_numbers"], values, command.operation)

    def derive(self, command: Derive) -> Statement:
        """See `Derive`."""
        _, sublog = sublogs_of(command.session)
        values = (command.session, sublog, command.source, command.record, command.key)
        return Statement(self._sql["derive"], values, command.operation, writes=True)

    def position(self, command: ReadPosition) -> Statement:
        """See `ReadPosition`."""
        return Statement(self._sql["position"], (command.session,), command.operation)

    def extend(self, command: Extend) -> Statement:
        """See `Extend`."""
        entries = command.entries
        words = [(term, one.seq, weight) for one in entries for term, weight in one.words.items()]
        values = (
            *(command.session, command.model, command.after, command.upto, command.floor),
            command.from_scratch,
            [one.seq for one in entries],
            [_bits(one.sketch) for one in entries],
            [one.vector for one in entries],
            [term for term, _, _ in words],
            [seq for _, seq, _ in words],
            [weight for _, _, weight in words],
        )
        # To repeat it is safe: it moves on from a position that it names.
        return Statement(self._sql["extend"], values, command.operation)

    def search(self, command: Search) -> Statement:
        """See `Search`."""
        counts = (command.limit, _bits(command.sketch), max(CANDIDATES_MAX, command.limit))
        values = (command.model, command.session, list(command.words), *counts)
        return Statement(self._sql["search"], values, command.operation)

    def search_near(self, command: Search) -> Statement:
        """See `Search`; by pgvector."""
        vector = struct.unpack(f"{len(command.vector)}b", command.vector)
        values = (command.model, command.session, list(command.words), command.limit)
        return Statement(
            self._sql["search_near"],
            (*values, str(list(vector)), command.limit),
            command.operation,
        )

    def fill_near(self, command: Search) -> Statement:
        """Bring pgvector's copy of this log on."""
        return Statement(self._sql["fill_near"], (command.session,), command.operation)


def _bits(sketch: bytes) -> str:
    return f"{int.from_bytes(sketch):0{8 * len(sketch)}b}"


def position(rows: Rows) -> Position:
    """Where an index is."""
    return Position(*rows[0]) if rows else Position()


def found(command: Search, rows: Rows) -> list[Candidate]:
    """The nearest of the candidates, and all that have the words."""
    return nearest(command, [(seq, bytes(vector), float(score)) for seq, vector, score in rows])


def found_near(rows: Rows) -> list[Candidate] | None:
    """What pgvector has found; None if it does not have all vectors of the log."""
    if any(seq == 0 and not whole for seq, whole, _ in rows):
        return None
    # A vector without any direction is at no distance to anything.
    return [Candidate(seq, 0.0 if math.isnan(at) else at, score) for seq, at, score in rows if seq]


ENTRIES: Final[dict[type[Command[Any]], Any]] = {
    ReadNumbers: (IndexStatements.read_numbers, list),
    ReadPosition: (IndexStatements.position, position),
    Extend: (IndexStatements.extend, position),
}
"""Commands on the index that are one statement: how they are asked, and what the rows mean."""
