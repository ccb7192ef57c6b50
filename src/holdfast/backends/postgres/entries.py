"""The index of a log in PostgreSQL: statements and replies. Pure.

The server chooses candidates by their sketches and words; their vectors are compared here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from holdfast.backends.postgres.requests import Request, Requests, Rows
from holdfast.backends.queries import load_queries
from holdfast.commands import Command, Derive, Pick, lanes_of
from holdfast.recall.commands import (
    CANDIDATES_MAX,
    POSTINGS_MAX,
    Candidate,
    Extend,
    Followed,
    Position,
    Search,
    nearest,
)

SQL: Final = load_queries(Path(__file__).with_name("entries.sql"))


class EntryRequests:
    """Statements on the index, and on the logs beside a session."""

    def __init__(self, requests: Requests) -> None:
        self._sql = requests.prepared(SQL, {"{postings_max}": str(POSTINGS_MAX)})

    def pick(self, command: Pick) -> Request:
        """See `Pick`."""
        return self._request(command, command.session, list(command.numbers))

    def derive(self, command: Derive) -> Request:
        """See `Derive`."""
        _, lane = lanes_of(command.session)
        values = (command.session, lane, command.source, command.record, command.key)
        return Request(self._sql["derive"], values, command.operation, writes=True)

    def followed(self, command: Followed) -> Request:
        """See `Followed`."""
        return self._request(command, command.session)

    def extend(self, command: Extend) -> Request:
        """See `Extend`."""
        entries = command.entries
        words = [(term, one.seq, weight) for one in entries for term, weight in one.words.items()]
        values = (
            *(command.session, command.model, command.after, command.upto, command.floor),
            command.anew,
            [one.seq for one in entries],
            [_bits(one.sketch) for one in entries],
            [one.vector for one in entries],
            [term for term, _, _ in words],
            [seq for _, seq, _ in words],
            [weight for _, _, weight in words],
        )
        # To repeat it is safe: it moves on from a position that it names.
        return Request(self._sql["extend"], values, command.operation)

    def search(self, command: Search) -> Request:
        """See `Search`."""
        counts = (command.limit, _bits(command.sketch), max(CANDIDATES_MAX, command.limit))
        values = (command.model, command.session, list(command.words), *counts)
        return Request(self._sql["search"], values, command.operation)

    def _request(self, command: Pick | Followed, *values: Any) -> Request:
        name = type(command).__name__.lower()
        return Request(self._sql[name], values, command.operation)


def _bits(sketch: bytes) -> str:
    return f"{int.from_bytes(sketch):0{8 * len(sketch)}b}"


def position(rows: Rows) -> Position:
    """Where an index is."""
    return Position(*rows[0]) if rows else Position()


def found(command: Search, rows: Rows) -> list[Candidate]:
    """The nearest of the candidates, and all that have the words."""
    return nearest(command, [(seq, bytes(vector), float(score)) for seq, vector, score in rows])


ENTRIES: Final[dict[type[Command[Any]], Any]] = {
    Pick: (EntryRequests.pick, list),
    Followed: (EntryRequests.followed, position),
    Extend: (EntryRequests.extend, position),
}
"""Commands on the index that are one statement: how they are asked, and what the rows mean."""
