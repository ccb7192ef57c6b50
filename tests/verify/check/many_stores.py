"""Stores that many threads or tasks of one process share, as in a service."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiosqlite

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.stores import KEEPS, SCHEMA, Sound, Turns

Turn = dict[str, Any]


@dataclass(slots=True)
class Waiting:
    work: tuple[str, list[Turn], str | None]
    over: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class Grouped(Sound):
    """Sound: whoever comes first writes for all who wait, in one transaction and one sync."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._queue: list[Waiting] = []
        self._lock, self._writes = threading.Lock(), threading.Lock()

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        mine = Waiting((session, messages, key))
        with self._lock:
            self._queue.append(mine)
        with self._writes:
            with self._lock:
                group, self._queue = self._queue, []
            if group:
                self._write(group)
        mine.over.wait()
        if mine.error is not None:
            raise mine.error

    def _write(self, group: list[Waiting]) -> None:
        error: BaseException | None = None
        try:
            self._begin(len(group))
            for each in group:
                session, messages, key = each.work
                if key is None or self._is_new(session, key):
                    for message in messages:
                        self._insert(session, self.encode(message))
            self.db.execute("COMMIT")
        except BaseException as failure:  # noqa: BLE001 - everybody's
            self._roll_back()
            error = failure
        for each in group:
            each.error = error
            each.over.set()

    def _begin(self, writes: int) -> None:
        del writes
        self.db.execute("BEGIN IMMEDIATE")

    def history(self, session: str, limit: int | None) -> list[Turn]:
        with self._writes:
            return super().history(session, limit)

    def forget(self, session: str) -> None:
        with self._writes:
            super().forget(session)


class GroupsUnsynced(Grouped):
    """So many at once are surely safe with less: from the first group on, SQLite syncs when it likes."""

    def _begin(self, writes: int) -> None:
        if writes > 1:
            self.db.execute("PRAGMA synchronous=NORMAL")
        super()._begin(writes)


class TasksOneTransaction:
    """One aiosqlite connection, and `commit` is everybody's: half a batch goes with another's."""

    def __init__(self, db: aiosqlite.Connection) -> None:
        self.db = db

    async def append(self, session: str, messages: list[Turn]) -> None:
        for message in messages:
            await self._insert(session, json.dumps(message))
        await self.db.commit()

    async def _insert(self, session: str, body: str) -> None:
        await self.db.execute("INSERT INTO messages (session, body) VALUES (?, ?)", (session, body))

    async def history(self, session: str, limit: int | None) -> list[Turn]:
        query = "SELECT body FROM messages WHERE session = ? ORDER BY n DESC LIMIT ?"
        rows = await self.db.execute_fetchall(query, (session, -1 if limit is None else limit))
        return Turns(body for (body,) in reversed(list(rows)))

    async def forget(self, session: str) -> None:
        await self.db.execute("DELETE FROM messages WHERE session = ?", (session,))
        await self.db.commit()

    async def close(self) -> None:
        await self.db.close()


class TasksOneByOne(TasksOneTransaction):
    """Sound: the same with a lock around each transaction, and around each read."""

    def __init__(self, db: aiosqlite.Connection) -> None:
        super().__init__(db)
        self._lock = asyncio.Lock()

    async def append(self, session: str, messages: list[Turn]) -> None:
        async with self._lock:
            try:
                await super().append(session, messages)
            except BaseException:
                await self.db.rollback()
                raise

    async def history(self, session: str, limit: int | None) -> list[Turn]:
        async with self._lock:
            return await super().history(session, limit)

    async def forget(self, session: str) -> None:
        async with self._lock:
            await super().forget(session)


def _threads(kind: type[Sound]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        path = engine.url.removeprefix("sqlite:///")
        return Target(open=lambda: kind(path), engine=engine, claims=KEEPS, thread_safe=True)

    return target


def _tasks(kind: type[TasksOneTransaction]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        async def start() -> TasksOneTransaction:
            db = await aiosqlite.connect(engine.url.removeprefix("sqlite:///"), timeout=20)
            await db.execute("PRAGMA journal_mode=WAL")
            await db.execute("PRAGMA synchronous=FULL")
            await db.executescript(SCHEMA)
            return kind(db)

        claims = Claims(
            exactly_once=NotClaimed("there is no key"),
            expiring=NotClaimed("we keep everything"),
            recallable=NotClaimed("there is no index"),
        )
        return Target(open=start, engine=engine, claims=claims)

    return target


grouped = _threads(Grouped)
groups_unsynced = _threads(GroupsUnsynced)
tasks_one_transaction = _tasks(TasksOneTransaction)
tasks_one_by_one = _tasks(TasksOneByOne)
