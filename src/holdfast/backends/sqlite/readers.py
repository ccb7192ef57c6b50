"""A few reading connections, lent out one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import apsw

from holdfast.backends.sqlite.connection import open_connection
from holdfast.backends.sqlite.mapping import BACKEND
from holdfast.backends.sqlite.tables import Tables
from holdfast.errors import EngineUnreachable, StoreClosed

READERS_MAX: Final = 8
READER_TIMEOUT_S: Final = 30.0

Reader = tuple[apsw.Connection, Tables]


class Readers:
    """At most `READERS_MAX` connections; whoever comes when all are lent waits, not for ever."""

    def __init__(self, path: Path, namespace: bytes, *, busy_timeout_s: float) -> None:
        self._path = path
        self._namespace = namespace
        self._busy_timeout_s = busy_timeout_s
        self._idle: list[Reader] = []
        self._lent = 0
        self._closed = False
        self._returned = threading.Condition()

    @contextmanager
    def borrow(self) -> Iterator[Reader]:
        """A reader for the length of a `with` block."""
        reader = self._take() or self._new()
        try:
            yield reader
        finally:
            self._give_back(reader)

    def close(self) -> None:
        """Close idle readers now, lent ones when they come back."""
        with self._returned:
            self._closed = True
            for connection, _ in self._idle:
                connection.close()
            self._idle.clear()

    def wait_returned(self, timeout_s: float) -> bool:
        """After `close`: whether all that were lent came back in time."""
        deadline_s = time.monotonic() + timeout_s
        with self._returned:
            while self._lent and time.monotonic() < deadline_s:
                self._returned.wait(0.01)
            return not self._lent

    def _take(self) -> Reader | None:
        """An idle reader, or None with the right to open one."""
        with self._returned:
            if not self._returned.wait_for(self._may_go_on, READER_TIMEOUT_S):
                raise EngineUnreachable(
                    f"all {READERS_MAX} reading connections were busy for {READER_TIMEOUT_S:.0f} s",
                    backend=BACKEND,
                )
            if self._closed:
                raise StoreClosed("this store is closed; nothing was sent. Connect again")
            self._lent += 1
            return self._idle.pop() if self._idle else None

    def _may_go_on(self) -> bool:
        return self._closed or self._lent < READERS_MAX

    def _new(self) -> Reader:
        try:
            connection = open_connection(self._path, busy_timeout_s=self._busy_timeout_s)
        except BaseException:
            with self._returned:
                self._lent -= 1
                self._returned.notify()
            raise
        # A reader that is the last to be closed must not fold in and delete a -wal file by its
        # name: it may be another one by now.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection, Tables(connection, self._namespace)

    def _give_back(self, reader: Reader) -> None:
        with self._returned:
            self._lent -= 1
            if self._closed:
                reader[0].close()
            else:
                self._idle.append(reader)
            self._returned.notify()
