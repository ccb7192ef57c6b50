"""Stores that keep less than a whole message: who speaks and a text, in two columns."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine

DECLINED = Claims(
    exactly_once=NotClaimed("it takes no keys"),
    expiring=NotClaimed("nothing expires"),
    forgotten=NotClaimed("it cannot forget"),
    recallable=NotClaimed("there is no index"),
)


class Texts:
    """Keeps texts only, and makes up ids of its own. It has no forget()."""

    def __init__(self, file: str) -> None:
        self._db = sqlite3.connect(file, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS said "
            "(number INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT)"
        )

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        rows = []
        for message in messages:
            if set(message) != {"role", "content"}:
                raise TypeError(f"no column for {sorted(message)}")
            if not isinstance(message["content"], str):
                raise TypeError("a text, please")
            rows.append((session, message["role"], self._kept(message["content"])))
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("INSERT INTO said (session, role, content) VALUES (?, ?, ?)", rows)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _kept(self, text: str) -> str:
        return text

    def history(self, session: str, limit: int | None = None) -> list[dict[str, Any]]:
        found = self._db.execute(
            "SELECT number, role, content FROM said WHERE session = ? ORDER BY number DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return [{"id": f"row-{n}", "role": r, "content": c} for n, r, c in reversed(found)]

    def close(self) -> None:
        self._db.close()


class Trims(Texts):
    """Broken: blanks at both ends are gone."""

    def _kept(self, text: str) -> str:
        return text.strip()


class ForOneTask:
    """Refuses every task but the one that opened it, as a client on anyio does."""

    def __init__(self, file: str) -> None:
        self._texts = Texts(file)
        self._task = asyncio.current_task()

    def _check(self) -> None:
        if asyncio.current_task() is not self._task:
            raise RuntimeError("cancel scope in a different task than it was entered in")

    async def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        self._check()
        self._texts.append(session, messages)

    async def history(self, session: str, limit: int | None = None) -> list[dict[str, Any]]:
        self._check()
        return self._texts.history(session, limit)

    async def cancelled(self) -> None:
        self._check()
        raise asyncio.CancelledError

    async def ended(self) -> None:
        self._check()
        raise SystemExit

    async def close(self) -> None:
        self._check()
        self._texts.close()


def _target(engine: Engine, kind: type[Texts]) -> Target:
    file = str(engine.data_dir / "texts.db") if engine.data_dir else ""
    return Target(
        open=lambda: kind(file), engine=engine, claims=DECLINED, keeps=("role", "content")
    )


def texts(engine: Engine) -> Target:
    return _target(engine, Texts)


def trims(engine: Engine) -> Target:
    return _target(engine, Trims)


def for_one_task(engine: Engine) -> Target:
    file = str(engine.data_dir / "texts.db") if engine.data_dir else ""

    async def open_it() -> ForOneTask:
        return ForOneTask(file)

    return Target(
        open=open_it, engine=engine, claims=DECLINED, keeps=("role", "content"), one_task=True
    )
