"""The tables of one connection: each method is a step inside an open transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast import limits
from holdfast.backends.queries import load_queries
from holdfast.backends.sqlite import index
from holdfast.backends.sqlite.index import place
from holdfast.commands import ERASED, TTL_KEEP, TTL_NEVER, Facts, Marks, trimmed_before
from holdfast.errors import Damaged
from holdfast.model import SessionState
from holdfast.recall.index_commands import Candidate, Entry, Extend, Position, Search
from holdfast.tombstones import digest_name, is_digest

OLD_KEYS: Final = 8
SQL: Final = load_queries(Path(__file__).with_name("queries.sql"))


def clock_ms() -> int:
    """The engine's clock. SQLite runs in this process, so it is the clock of this machine."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Row:
    """A session as the tables hold it. Of its numbers, those above the floor are there."""

    id: int
    floor: int = 0
    ttl_ms: int | None = None
    expires_ms: int | None = None
    state: str = "live"
    base: int = 0
    cut: int = 0
    cut_total: int = 0
    marks: Marks = b""
    gone_ms: int | None = None
    last: int = 0
    total: int = 0
    written_ms: int = 0
    is_digest: bool = False
    """Whether it bears a digest in the place of the name by which it was found."""

    @property
    def trimmed(self) -> int:
        """How many messages appends have cut off before the first that is there."""
        return trimmed_before(self.floor, self.base, self.cut)

    @property
    def bytes(self) -> int:
        """Of all records above the floor."""
        return self.total - (self.cut_total if self.cut == self.floor else 0)

    def state_at(self, now_ms: int) -> SessionState:
        """Expiry is decided when it is looked at; sweeping only frees the room."""
        if self.state != "live":
            return SessionState(self.state)
        if self.expires_ms is not None and self.expires_ms <= now_ms:
            return SessionState.EXPIRED
        return SessionState.LIVE

    def end_at(self, now_ms: int) -> int:
        """The last visible number, 0 if nothing is."""
        visible = self.last > self.floor and self.state_at(now_ms) is SessionState.LIVE
        return self.last if visible else 0

    def set_ttl(self, ttl_ms: int, now_ms: int) -> None:
        """Restart the time to live, as the write asks."""
        if ttl_ms != TTL_KEEP:
            self.ttl_ms = None if ttl_ms == TTL_NEVER else ttl_ms
        # One more, because the present millisecond has begun already: never before its time.
        self.expires_ms = None if self.ttl_ms is None else now_ms + self.ttl_ms + 1

    def clear(self, state: SessionState) -> None:
        """Nothing given so far is visible any more."""
        self.floor, self.total, self.state = self.last, 0, state.value

    def facts_at(self, now_ms: int) -> Facts:
        """The facts at an instant."""
        state = self.state_at(now_ms)
        count, size = (self.last - self.floor, self.bytes) if state is SessionState.LIVE else (0, 0)
        trimmed = self.trimmed if count else 0
        facts = Facts(state, self.last, count, size, self.ttl_ms, self.expires_ms, trimmed, now_ms)
        facts.marks, facts.written_ms = self.marks, self.written_ms
        return facts


def _damaged(name: bytes) -> Damaged:
    shown = name.decode("utf-8", "backslashreplace")
    return Damaged(
        f"the row of session {shown!r} is damaged; nothing was written. Other sessions can be read. "
        "Keep a copy of the file, then restore a backup",
        backend="sqlite",
    )


class Tables:
    """Statements on one connection, within one namespace."""

    def __init__(self, connection: apsw.Connection, namespace: bytes) -> None:
        self._connection = connection
        self._execute = connection.cursor().execute
        self._namespace = namespace

    def session(self, name: bytes) -> Row | None:
        """The row of a session; None if it was never written to."""
        row = self._named(name)
        if row is None and not is_digest(name):
            row = self._named(digest_name(name))
            if row is not None:
                row.is_digest = True
        return row

    def _named(self, name: bytes) -> Row | None:
        for found in self._execute(SQL["read_session"], (self._namespace, name)):
            row = Row(*found)
            if row.state is None or not isinstance(row.floor, int):
                raise _damaged(name)
            row.last = row.floor
            bounds = (place(row.id, row.floor), place(row.id, limits.NUMBER_MAX))
            for row.last, row.total, row.written_ms in self._execute(SQL["read_newest"], bounds):
                pass
            return row
        return None

    def add_session(self, name: bytes) -> Row:
        """A new, empty session."""
        [(identity,)] = self._execute(SQL["add_session"], (self._namespace, name))
        return Row(identity)

    def save(self, row: Row) -> None:
        """Write a row back, with the time since when it is a tombstone."""
        row.gone_ms = None if row.state == "live" else row.gone_ms or clock_ms()
        columns = (row.id, row.floor, row.ttl_ms, row.expires_ms, row.state)
        cut = (row.base, row.cut, row.cut_total, row.marks, row.gone_ms)
        self._execute(SQL["save_session"], (*columns, *cut))

    def hide_name(self, row: Row, name: bytes) -> None:
        """Let a tombstone bear a digest instead of its name, and take in one that a load left there."""
        digest = digest_name(name)
        other = self._named(digest)
        if other is not None:
            row.floor = row.last = max(row.last, other.last)
            self._execute(SQL["move_keys"], (row.id, other.id))
            self._execute(SQL["remove_keys"], (other.id,))
            self._execute(SQL["remove_session"], (other.id,))
        self._execute(SQL["rename_session"], (row.id, digest))
        row.is_digest = True

    def show_name(self, row: Row, name: bytes) -> None:
        """A session that begins again bears its name again."""
        self._execute(SQL["rename_session"], (row.id, name))
        row.is_digest = False

    def remove_messages(self, row: Row) -> None:
        """Delete every record up to the floor, and what the index has of them."""
        self._execute(SQL["remove_messages"], (place(row.id, 0), place(row.id, row.floor)))
        index.remove(self._execute, row.id)

    def trim(self, row: Row, floor: int) -> None:
        """Delete records up to a number above the floor, and what the index has of them."""
        gone = (place(row.id, 0), place(row.id, floor))
        row.cut_total = row.total - row.bytes
        for (row.cut_total,) in self._execute(SQL["read_total"], gone):
            pass  # none, or not that of the floor itself, where a row is missing
        self._execute(SQL["remove_messages"], gone)
        index.cut(self._execute, row.id, floor)
        if not row.trimmed:
            row.base = row.floor
        row.floor = row.cut = floor

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

    def picked(self, row: Row, numbers: Sequence[int]) -> list[tuple[int, bytes]]:
        """Those of these records that are there, ascending."""
        places = [place(row.id, seq) for seq in numbers if row.floor < seq <= row.last]
        found: list[Any] = self._execute(SQL["picked"], (json.dumps(places),)).fetchall()
        return found

    def erase_record(self, row: Row, seq: int) -> int | None:
        """Put `ERASED` in the place of a record; the bytes it had, None if it was erased before."""
        at, [(_, record)] = place(row.id, seq), self.picked(row, [seq])
        if record == ERASED:
            return None
        more = len(ERASED) - len(record)
        self._execute(SQL["replace_message"], (at, ERASED))
        self._execute(SQL["move_totals"], (at, place(row.id, row.last), more))
        row.total += more
        index.remove_entry(self._execute, row.id, seq)
        return len(record)

    def not_erased(self, row: Row, entries: Sequence[Entry]) -> list[Entry]:
        """Entries of records that were not erased since they were read."""
        records = dict(self.picked(row, [entry.seq for entry in entries]))
        return [entry for entry in entries if records.get(entry.seq) != ERASED]

    def index_position(self, row: Row) -> Position:
        """How far the index of a log is."""
        return index.index_position(self._execute, row.id, row.floor)

    def add_entries(self, row: Row, command: Extend) -> None:
        """Add to the index of a log, and move it on."""
        index.add(self._connection, row.id, command)

    def remove_entries(self, row: Row) -> None:
        """Drop the index of a log."""
        index.remove(self._execute, row.id)

    def candidates(self, row: Row, command: Search) -> list[Candidate]:
        """What the index finds."""
        return index.find(self._connection, row.id, row.last - row.floor, command)

    def key(self, row: Row, digest: bytes) -> tuple[int, int] | None:
        """The numbers that a key was used for."""
        # To the end: a statement that waits for its next row would keep this connection on the
        # snapshot of now, and once another one has written, it could never write again.
        found: list[Any] = self._execute(SQL["read_key"], (row.id, digest)).fetchall()
        return found[0] if found else None

    def add_key(self, row: Row, digest: bytes, first: int, last: int, now_ms: int) -> None:
        """Note that a key was used."""
        self._execute(SQL["add_key"], (row.id, digest, first, last, now_ms))

    def drop_old_keys(self, row: Row, digest: bytes, before_ms: int) -> None:
        """Look at a few keys of a session for some of gone messages that were used before.

        Digests are as good as random, so with a few for each that is added no more than a fraction
        of those that are kept are older than they need be, and no index by age is needed.
        """
        self._execute(SQL["drop_old_keys"], (row.id, digest, row.floor, before_ms, OLD_KEYS))

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

    def sweep(self, now_ms: int, messages_max: int) -> bool:
        """Free the room of one expired session, at most so many messages; whether there was one.

        First the whole session is marked, so that no clock can bring half of it back.
        """
        found: list[Any] = self._execute(SQL["expired"], (now_ms,)).fetchall()
        if not found:
            return False
        namespace, name = found[0]
        row = Tables(self._connection, namespace).session(name)
        if row is not None:
            row.clear(SessionState.EXPIRED)
            bounds = (place(row.id, 0), place(row.id, row.floor), messages_max)
            self._execute(SQL["sweep_messages"], bounds)
            swept = self._connection.changes()
            if index.sweep(self._connection, row.id, messages_max) and swept < messages_max:
                row.expires_ms = None
            self.save(row)
        return True

    def sweep_gone(self, before_ms: int, keys_max: int) -> bool:
        """Drop a tombstone that is older, with its keys, of which at most so many; whether there was one.

        Of this namespace: others may keep theirs for longer.
        """
        found: list[Any] = self._execute(SQL["long_gone"], (before_ms, self._namespace)).fetchall()
        for (identity,) in found:
            self._execute(SQL["sweep_keys"], (identity, keys_max))
            if self._connection.changes() < keys_max:
                self._execute(SQL["remove_session"], (identity,))
        return bool(found)
