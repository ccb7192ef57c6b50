"""The tables of one connection: each function is a step inside an open transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw

from holdfast import limits
from holdfast.backends.queries import load_queries
from holdfast.commands import TTL_KEEP, TTL_NEVER, Facts
from holdfast.model import SessionState

SQL: Final = load_queries(__package__)
_NUMBER_BITS: Final = 32


def clock_ms() -> int:
    """The engine's clock. SQLite runs in this process, so it is the clock of this machine."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Row:
    """A session as the table holds it."""

    id: int
    last: int
    floor: int
    count: int
    bytes: int
    ttl_ms: int | None
    expires_ms: int | None
    state: str

    def state_at(self, now_ms: int) -> SessionState:
        """Expiry is decided when it is looked at; sweeping only frees the room."""
        if self.state == "live" and self.expires_ms is not None and self.expires_ms <= now_ms:
            return SessionState.EXPIRED
        return SessionState(self.state)

    def end_at(self, now_ms: int) -> int:
        """The last visible number, 0 if nothing is."""
        visible = self.last > self.floor and self.state_at(now_ms) is SessionState.LIVE
        return self.last if visible else 0

    def set_ttl(self, ttl_ms: int, now_ms: int) -> None:
        """Start the time to live anew, as the write asks."""
        if ttl_ms != TTL_KEEP:
            self.ttl_ms = None if ttl_ms == TTL_NEVER else ttl_ms
        self.expires_ms = None if self.ttl_ms is None else now_ms + self.ttl_ms

    def clear(self, state: SessionState) -> None:
        """Nothing given so far is visible any more."""
        self.floor, self.count, self.bytes, self.state = self.last, 0, 0, state.value

    def facts_at(self, now_ms: int) -> Facts:
        """The facts at an instant."""
        state = self.state_at(now_ms)
        if state is not SessionState.LIVE:
            return Facts(state, self.last, ttl_ms=self.ttl_ms, expires_ms=self.expires_ms)
        return Facts(state, self.last, self.count, self.bytes, self.ttl_ms, self.expires_ms)


class Tables:
    """Statements on one connection, within one namespace."""

    def __init__(self, connection: apsw.Connection, namespace: bytes) -> None:
        self._execute = connection.cursor().execute
        self._execute_many = connection.cursor().executemany
        self._namespace = namespace

    def session(self, name: bytes) -> Row | None:
        """The row of a session; None if it was never written to."""
        for found in self._execute(SQL["read_session"], (self._namespace, name)):
            return Row(*found)
        return None

    def add_session(self, name: bytes) -> Row:
        """A new, empty session."""
        [(identity,)] = self._execute(SQL["add_session"], (self._namespace, name))
        return Row(identity, 0, 0, 0, 0, None, None, "live")

    def save(self, row: Row) -> None:
        """Write a row back."""
        self._execute(
            SQL["save_session"],
            (
                row.id,
                row.last,
                row.floor,
                row.count,
                row.bytes,
                row.ttl_ms,
                row.expires_ms,
                row.state,
            ),
        )

    def add_messages(self, row: Row, records: Sequence[bytes]) -> None:
        """Give the next numbers to records; the row is for the caller to save."""
        first = place(row.id, row.last + 1)
        if len(records) == 1:
            self._execute(SQL["add_message"], (first, records[0]))
        else:
            self._execute_many(SQL["add_message"], enumerate(records, first))
        row.last += len(records)
        row.count += len(records)
        row.bytes += sum(map(len, records))

    def put_messages(self, row: Row, rows: Sequence[tuple[int, bytes]]) -> None:
        """Write records under the numbers that they had."""
        self._execute_many(
            SQL["add_message"], ((place(row.id, seq), record) for seq, record in rows)
        )

    def remove_messages(self, row: Row) -> None:
        """Delete every record up to the floor."""
        self._execute(SQL["remove_messages"], (place(row.id, 0), place(row.id, row.floor)))

    def records(
        self, row: Row, *, after: int, before: int | None, limit: int | None, forward: bool
    ) -> list[tuple[int, bytes]]:
        """Records with after < number < before, ascending."""
        low = place(row.id, max(after, row.floor))
        high = place(row.id, row.last + 1 if before is None else min(before, row.last + 1))
        query = SQL["oldest" if forward else "newest"]
        found: list[Any] = self._execute(
            query, (low, high, -1 if limit is None else limit)
        ).fetchall()
        if not forward:
            found.reverse()
        return found

    def key(self, row: Row, digest: bytes) -> tuple[int, int] | None:
        """The numbers that a key was used for."""
        for first, last in self._execute(SQL["read_key"], (row.id, digest)):
            return first, last
        return None

    def add_key(self, row: Row, digest: bytes, first: int, last: int) -> None:
        """Note that a key was used."""
        self._execute(SQL["add_key"], (row.id, digest, first, last))

    def keys(self, row: Row) -> list[tuple[bytes, int, int]]:
        """Every key that was used."""
        found: list[Any] = self._execute(SQL["all_keys"], (row.id,)).fetchall()
        return found

    def names(
        self, prefix: bytes, after: bytes | None, limit: int, *, gone: bool, now_ms: int
    ) -> list[bytes]:
        """Session names in order. No UTF-8 holds the byte 255, so it bounds every prefix."""
        bounds = (prefix, after or b"", prefix + b"\xff")
        found = self._execute(SQL["names"], (self._namespace, *bounds, now_ms, gone, limit))
        return [name for (name,) in found]

    def sweep(self, now_ms: int, messages_max: int) -> int:
        """Free the room of one expired session, at most so many messages; how many it freed.

        First the whole session is marked, so that no clock can bring half of it back.
        """
        found: Any = self._execute(SQL["expired"], (now_ms,)).fetchone()
        if found is None:
            return 0
        row = Row(*found)
        row.clear(SessionState.EXPIRED)
        bounds = (place(row.id, 0), place(row.id, row.floor), messages_max)
        self._execute(SQL["sweep_messages"], bounds)
        [(freed,)] = self._execute("SELECT changes()")
        if freed < messages_max:
            row.expires_ms = None
        self.save(row)
        return int(freed)


def place(session: int, seq: int) -> int:
    """Where a message stands in the one b-tree of all messages."""
    return session << _NUMBER_BITS | min(seq, limits.NUMBER_MAX)
