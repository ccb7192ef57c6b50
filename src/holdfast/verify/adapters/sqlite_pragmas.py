"""Python's own sqlite3 with the pragmas that people use: targets of the durability card.

Each is a function of an engine, as `holdfast check` takes it:

    holdfast check holdfast.verify.adapters.sqlite_pragmas:wal_normal --engine sqlite
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.verify.claims import Claims, NotClaimed
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

BUSY_S: Final = 20.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, body TEXT);
CREATE INDEX IF NOT EXISTS by_session ON log (session, n);
"""
_CLAIMS: Final = Claims(
    exactly_once=NotClaimed("append takes no key"),
    expiring=NotClaimed("it keeps everything"),
    recallable=NotClaimed("there is no index"),
)


class PlainLog:
    """A log in a table: one transaction an append."""

    def __init__(self, path: str, journal: str, synchronous: str) -> None:
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        self._db.execute(f"PRAGMA journal_mode={journal}").fetchall()
        self._db.execute(f"PRAGMA synchronous={synchronous}")
        self._db.executescript(_SCHEMA)

    def append(self, session: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """All of them or none."""
        rows = [(session, json.dumps(message)) for message in messages]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("INSERT INTO log (session, body) VALUES (?, ?)", rows)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """The newest `limit`, oldest first."""
        rows = self._db.execute(
            "SELECT body FROM log WHERE session = ? ORDER BY n DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def forget(self, session: str) -> None:
        """Erase its rows."""
        self._db.execute("DELETE FROM log WHERE session = ?", (session,))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


def _target_of(journal: str, synchronous: str) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        path = engine.url.removeprefix("sqlite:///")
        return Target(
            open=functools.partial(PlainLog, path, journal, synchronous),
            engine=engine,
            claims=_CLAIMS,
            name=f"sqlite3, {journal} + {synchronous}",
            settings={"journal_mode": journal, "synchronous": synchronous},
        )

    return target


delete_full: Final = _target_of("DELETE", "FULL")
"""What Python's sqlite3 does where nobody says anything."""
delete_extra: Final = _target_of("DELETE", "EXTRA")
wal_full: Final = _target_of("WAL", "FULL")
wal_normal: Final = _target_of("WAL", "NORMAL")
wal_off: Final = _target_of("WAL", "OFF")
