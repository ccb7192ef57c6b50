"""Stores that are sound but odd, on which no alarm may be raised; and two that serve nobody."""

from __future__ import annotations

import fcntl
import itertools
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.stores import KEEPS, Sound, Turns

BRIEF_S = 0.5


class TooBusy(Exception):
    """Not done, and it says so."""


class Refuses(Sound):
    """Refuses one request in every ten, before it has done anything."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._count = itertools.count(7)

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self._admit()
        super().append(session, messages, key)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        self._admit()
        return super().history(session, limit)

    def _admit(self) -> None:
        if next(self._count) % 10 == 9:
            raise TooBusy("try again")


class Brief(Sound):
    """A session is over a moment after its last write."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS alive (session TEXT PRIMARY KEY, at REAL)")

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del key
        self.db.execute("BEGIN IMMEDIATE")
        over = self.db.execute("SELECT at < ? FROM alive WHERE session = ?", self._now(session))
        if (over.fetchone() or (False,))[0]:
            self.db.execute("DELETE FROM messages WHERE session = ?", (session,))
        for message in messages:
            self._insert(session, self.encode(message))
        row = (session, time.time())
        self.db.execute("INSERT OR REPLACE INTO alive VALUES (?, ?)", row)
        self.db.execute("COMMIT")

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        asked = "SELECT body FROM messages JOIN alive USING (session) WHERE at >= ? AND session = ?"
        rows = self.db.execute(
            f"{asked} ORDER BY n DESC LIMIT ?",
            (*self._now(session), -1 if limit is None else limit),
        ).fetchall()
        return Turns(body for (body,) in reversed(rows))

    @staticmethod
    def _now(session: str) -> tuple[float, str]:
        return time.time() - BRIEF_S, session


class OneAtATime(Sound):
    """Says no to a second process, as an embedded engine with a lock file does."""

    def __init__(self, path: str) -> None:
        self._lock = Path(f"{path}.lock").open("w")  # noqa: SIM115 - held until close()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise TooBusy("another process has this database open") from None
        super().__init__(path)

    def close(self) -> None:
        super().close()
        self._lock.close()


class OneAtATimeUnsynced(OneAtATime):
    """The same, and it never waits for the disk."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("PRAGMA synchronous=OFF")


class CannotWrite(Sound):
    """A column is misspelt."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self.db.execute("INSERT INTO messages (boddy) VALUES (?)", (f"{session}{messages}{key}",))


class CannotRead(Sound):
    """An argument is misspelt."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return super().history(session, limits=limit)  # type: ignore[call-arg]


def _on(kind: type[Sound], engine: Engine, **fields: Any) -> Target:
    path = engine.url.removeprefix("sqlite:///")
    return Target(open=lambda: kind(path), engine=engine, claims=KEEPS, **fields)


def refuses(engine: Engine) -> Target:
    return _on(Refuses, engine, definite=(TooBusy,))


def brief(engine: Engine) -> Target:
    target = _on(Brief, engine, ttl_s=BRIEF_S)
    claims = Claims(recallable=NotClaimed("no index"), exactly_once=NotClaimed("no keys"))
    return replace(target, claims=claims)


def one_at_a_time(engine: Engine) -> Target:
    return _on(OneAtATime, engine, definite=(TooBusy,))


def one_unsynced(engine: Engine) -> Target:
    return _on(OneAtATimeUnsynced, engine, definite=(TooBusy,))


def cannot_write(engine: Engine) -> Target:
    return _on(CannotWrite, engine, definite=(sqlite3.Error,))


def cannot_read(engine: Engine) -> Target:
    return _on(CannotRead, engine)
