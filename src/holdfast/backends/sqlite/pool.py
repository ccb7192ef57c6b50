"""A few reading connections, lent out one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import apsw

from holdfast.backends.slots import Slots
from holdfast.backends.sqlite.driver import open_connection
from holdfast.backends.sqlite.errors import BACKEND
from holdfast.backends.sqlite.tables import Tables
from holdfast.errors import EngineUnreachable, StoreClosed

READERS_MAX: Final = 8
READER_TIMEOUT_S: Final = 30.0
RETURN_POLL_S: Final = 0.001

R = TypeVar("R")
Reader = tuple[apsw.Connection, Tables]


class Pool:
    """At most `READERS_MAX` connections; a caller that comes when all are lent waits, not for ever."""

    def __init__(self, path: Path, namespace: bytes, *, busy_timeout_s: float) -> None:
        self._path = path
        self._namespace = namespace
        self._busy_timeout_s = busy_timeout_s
        self._idle: list[Reader] = []
        self._slots = Slots(READERS_MAX)
        self._closed = False

    def read(self, work: Callable[[apsw.Connection, Tables], R]) -> R:
        """What `work` returns, at one instant."""
        holder = object()
        try:
            if not self._slots.take(holder, READER_TIMEOUT_S):
                raise EngineUnreachable(
                    f"all {READERS_MAX} reading connections were busy for {READER_TIMEOUT_S:.0f} s",
                    backend=BACKEND,
                )
            connection, tables = reader = self._taken()
            try:
                connection.execute("BEGIN")
                result = work(connection, tables)
                connection.execute("COMMIT")
            except BaseException:
                # A statement that was interrupted keeps its instant: later reads would see it too.
                connection.close(force=True)
                raise
            self._idle.append(reader)
            return result
        finally:
            self._slots.held.pop(holder, None)
            self._slots.wake_next()
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close idle readers now, lent ones when they come back."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop()[0].close()

    def wait_returned(self, timeout_s: float) -> bool:
        """After `close`: whether all that were lent came back in time."""
        deadline_s = time.monotonic() + timeout_s
        while self._slots.held and time.monotonic() < deadline_s:
            time.sleep(RETURN_POLL_S)
        return not self._slots.held

    def _taken(self) -> Reader:
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")
        with suppress(IndexError):  # other threads take, too
            return self._idle.pop()
        connection = open_connection(self._path, busy_timeout_s=self._busy_timeout_s)
        # A reader that is the last to be closed must not fold in and delete a -wal file by its
        # name: it may be another one by now.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection, Tables(connection, self._namespace)
