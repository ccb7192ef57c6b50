"""The writer's view of the tables: it remembers rows, and adds messages in bulk.

Every statement lets go of the interpreter lock and has to win it back from the other
threads. So a group of appends should take few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from holdfast.backends.sqlite.index import place
from holdfast.backends.sqlite.tables import SQL, Row, Tables
from holdfast.tombstones import digest_name

ROWS_MAX: Final = 1024
BULK_MAX: Final = 32
COLUMNS: Final = 4
_BULK: Final = [SQL["add_message"] + ", (?, ?, ?, ?)" * more for more in range(BULK_MAX)]


class Ledger(Tables):
    """Tables inside write transactions: call `begin`, then steps, then `flush` and `committed`."""

    def __init__(
        self, connection: apsw.Connection, namespace: bytes, keys_kept_ms: int = 0
    ) -> None:
        super().__init__(connection, namespace)
        self._keys_kept_ms = keys_kept_ms
        self._rows: dict[bytes, Row] = {}
        self._version = -1
        self.is_clean = True
        """Whether what is remembered is stored: not inside a transaction, nor after a failed one."""
        self._unwritten: list[int | bytes] = []
        self.has_removed = False
        """Whether this transaction took records away, of which the -wal file may have copies."""

    def begin(self) -> None:
        """Rows are remembered only while no other connection has written since our commit."""
        self.is_clean = self.has_removed = False
        if not self.is_current() or len(self._rows) > ROWS_MAX:
            self._rows.clear()

    def is_current(self) -> bool:
        """Whether no other connection has written since our commit, as far as this one knows."""
        return self._connection.data_version() == self._version

    def committed(self) -> None:
        """What is remembered is what is stored."""
        self._version = self._connection.data_version()
        self.is_clean = True

    def discard(self) -> None:
        """The transaction failed: remember nothing of it, and end a statement that it was in."""
        self._execute("")
        self._rows.clear()
        self._unwritten.clear()

    def session(self, name: bytes) -> Row | None:
        """The row of a session; None if it was never written to."""
        row = self._rows.get(name)
        if row is None:
            row = super().session(name)
            if row is not None:
                self._rows[name] = row
        return row

    def add_session(self, name: bytes) -> Row:
        """A new, empty session."""
        row = self._rows[name] = super().add_session(name)
        return row

    def hide_name(self, row: Row, name: bytes) -> None:
        """Let a tombstone bear a digest instead of its name."""
        self.has_removed = True
        super().hide_name(row, name)
        self._rows.pop(digest_name(name), None)

    def show_name(self, row: Row, name: bytes) -> None:
        """A session that begins again bears its name again."""
        super().show_name(row, name)
        self._rows.pop(digest_name(name), None)

    def add_messages(self, row: Row, records: Sequence[bytes], now_ms: int) -> None:
        """Give the next numbers to records; they are written by `flush`."""
        at = place(row.id, row.last)
        for record in records:
            at += 1
            row.total += len(record)
            self._unwritten += (at, row.total, record, now_ms)
        row.last += len(records)
        row.written_ms = now_ms

    def remove_messages(self, row: Row) -> None:
        """Delete every record up to the floor."""
        self.has_removed = True
        self.flush()
        super().remove_messages(row)

    def trim(self, row: Row, floor: int) -> None:
        """Delete records up to a number."""
        self.has_removed = True
        self.flush()
        super().trim(row, floor)

    def records(
        self, row: Row, *, after: int, before: int | None, limit: int | None, forward: bool
    ) -> list[tuple[int, bytes]]:
        """Records with after < number < before, ascending."""
        self.flush()
        return super().records(row, after=after, before=before, limit=limit, forward=forward)

    def picked(self, row: Row, numbers: Sequence[int]) -> list[tuple[int, bytes]]:
        """Those of these records that are there, ascending."""
        self.flush()
        return super().picked(row, numbers)

    def add_key(self, row: Row, digest: bytes, first: int, last: int, now_ms: int) -> None:
        """Note that a key was used, and look at a few others of the session."""
        super().add_key(row, digest, first, last, now_ms)
        if self._keys_kept_ms and row.floor:
            self.drop_old_keys(row, digest, now_ms - self._keys_kept_ms)

    def sweep(self, now_ms: int, messages_max: int) -> bool:
        """Free the room of one expired session, which may be one that is remembered, or of a tombstone."""
        self.flush()
        swept = super().sweep(now_ms, messages_max)
        if not swept and self._keys_kept_ms:
            swept = self.sweep_gone(now_ms - self._keys_kept_ms, messages_max)
        if swept:
            self.has_removed = True
            self._rows.clear()
        return swept

    def flush(self) -> None:
        """Write what was added, in as few statements as can be."""
        values = self._unwritten
        for at in range(0, len(values), COLUMNS * BULK_MAX):
            some = values[at : at + COLUMNS * BULK_MAX]
            self._execute(_BULK[len(some) // COLUMNS - 1], some)
        values.clear()
