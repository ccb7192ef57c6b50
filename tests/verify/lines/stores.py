"""Users' stores in which a crash at the right line tears a turn, and one in which none does."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from holdfast.verify.spec import TargetSpec, load_target, view_of

CLAIMS = Claims(
    exactly_once=NotClaimed("there is no key"),
    expiring=NotClaimed("we keep everything"),
    recallable=NotClaimed("there is no index"),
)
INSERT = "INSERT INTO turns (session, body) VALUES (?, ?)"


class TwoCommits:
    """The question in one transaction, the answer in the next."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, timeout=20, check_same_thread=False)
        self.db.execute("CREATE TABLE IF NOT EXISTS turns (n INTEGER PRIMARY KEY, session, body)")
        self.db.commit()

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        question, *answers = messages
        self.db.execute(INSERT, (session, json.dumps(question)))
        self.db.commit()
        bodies = map(json.dumps, answers)  # the first line at which a crash leaves half a turn
        rows = [(session, body) for body in bodies]
        self.db.executemany(INSERT, rows)
        self.db.commit()  # the last one

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        found = self.db.execute(
            "SELECT body FROM turns WHERE session = ? ORDER BY n DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(found)]

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM turns WHERE session = ?", (session,))
        self.db.commit()

    def close(self) -> None:
        self.db.close()


class OneCommit(TwoCommits):
    """The same, and sound."""

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        with self.db:
            for message in messages:
                self.db.execute(INSERT, (session, json.dumps(message)))


class NeverSynced(OneCommit):
    """A commit that only the kernel has."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("PRAGMA synchronous=OFF")


class InTwoSteps(OneCommit):
    """Forgetting and rewriting are torn: half goes first."""

    def forget(self, session: str) -> None:
        newest = "SELECT max(n) FROM turns WHERE session = ?"
        self.db.execute(f"DELETE FROM turns WHERE n = ({newest})", (session,))
        self.db.commit()
        super().forget(session)  # here half of a turn is left

    def rewrite(self, session: str, messages: list[dict[str, Any]]) -> None:
        super().forget(session)
        self.append(session, messages)  # here nothing is left


class InAThread:
    """Behind awaits, and everything is done by a thread that lives as long as the store."""

    def __init__(self, path: str) -> None:
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._path = path
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        inner = TwoCommits(self._path)
        while True:
            future, name, arguments = self._work.get()
            future.set_result(getattr(inner, name)(*arguments))

    async def _ask(self, name: str, *arguments: Any) -> Any:
        future: Future[Any] = Future()
        self._work.put((future, name, arguments))
        return await asyncio.wrap_future(future)

    async def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        await self._ask("append", session, messages)

    async def history(self, session: str, limit: int | None) -> Any:
        return await self._ask("history", session, limit)

    async def forget(self, session: str) -> None:
        await self._ask("forget", session)


class Locks(OneCommit):
    """Takes a lock file, which a crash leaves behind."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._lock = Path(f"{path}.lock")

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        self._lock.touch(exist_ok=False)
        super().append(session, messages)
        self._lock.unlink()


def _on(kind: Any) -> Any:
    def target(engine: Engine) -> Target:
        path = engine.url.removeprefix("sqlite:///")
        return Target(open=lambda: kind(path), claims=CLAIMS, engine=engine, code=(__name__,))

    return target


two_commits, one_commit, locks = _on(TwoCommits), _on(OneCommit), _on(Locks)
in_two_steps, in_a_thread, never_synced = _on(InTwoSteps), _on(InAThread), _on(NeverSynced)


def somewhere_else(engine: Engine) -> Target:
    """Its lines are looked for where none of them is."""
    path = engine.url.removeprefix("sqlite:///")
    return Target(open=lambda: TwoCommits(path), claims=CLAIMS, code=("tests.waiting",))


def our_own(engine: Engine) -> Target:
    """Our store, where it writes: what stands before that has done nothing yet."""
    ours = load_target(TargetSpec("sqlite", engine=view_of(engine)))
    parts = ("writer", "steps")
    code = tuple(f"holdfast.backends.sqlite.{part}" for part in parts)
    return Target(open=ours.open, claims=ours.claims, code=code)
