"""Users' stores on SQLite: one sound, and copies of it that break one promise each.

Each is a function `target(engine)`, as `holdfast check tests.verify.check.stores:NAME` takes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine

KEEPS = Claims(
    expiring=NotClaimed("we keep everything"), recallable=NotClaimed("there is no index")
)
SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, body TEXT);
CREATE INDEX IF NOT EXISTS by_session ON messages (session, n);
CREATE TABLE IF NOT EXISTS keys (session TEXT, key TEXT, PRIMARY KEY (session, key));
"""


class Turns(list[dict[str, Any]]):
    """A history, and words about each record that could not be read."""

    def __init__(self, records: Iterable[str | bytes]) -> None:
        super().__init__()
        self.damaged: list[str] = []
        for record in records:
            try:
                self.append(json.loads(record))
            except ValueError as error:
                self.damaged.append(f"{record[:20]!r}: {error}")


class Sound:
    """A sound store on SQLite: one transaction an append, keys kept for ever."""

    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode=WAL").fetchall()
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.executescript(SCHEMA)

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        bodies = [self.encode(message) for message in messages]
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if key is None or self._is_new(session, key):
                for body in bodies:
                    self._insert(session, body)
            self.db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        rows = self.db.execute(
            "SELECT body FROM messages WHERE session = ? ORDER BY n DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return Turns(body for (body,) in reversed(rows))

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM messages WHERE session = ?", (session,))

    def close(self) -> None:
        self.db.close()

    def encode(self, message: dict[str, Any]) -> str:
        return json.dumps(message)

    def _is_new(self, session: str, key: str) -> bool:
        done = self.db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (session, key))
        return done.rowcount == 1

    def _insert(self, session: str, body: str) -> None:
        self.db.execute("INSERT INTO messages (session, body) VALUES (?, ?)", (session, body))

    def _roll_back(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")


class LostUpdate(Sound):
    """Reads the whole history, adds to it and writes it back, in two steps."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        whole = [*self.history(session, None), *messages]
        self.db.execute("BEGIN IMMEDIATE")
        if key is None or self._is_new(session, key):
            self.db.execute("DELETE FROM messages WHERE session = ?", (session,))
            for message in whole:
                self._insert(session, json.dumps(message))
        self.db.execute("COMMIT")


class TornBatch(Sound):
    """Each message of a batch in a transaction of its own."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        if key is None or self._is_new(session, key):
            for message in messages:
                self._insert(session, json.dumps(message))
                time.sleep(0.003)  # other things are done in between, as on a busy night


class RefusesOpenCalls(Sound):
    """Takes a tool call together with its results only: nothing can be left open."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        if len(calls) != sum(message["role"] == "tool" for message in messages):
            raise UsageError("a tool call goes together with its results")
        super().append(session, messages, key)


class OnlyWhole(Sound):
    """Shows a call with its results, or not at all, to everybody."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        turns, shown = super().history(session, limit), Turns([])
        for at, turn in enumerate(turns):
            due = {call["id"] for call in turn.get("tool_calls", ())}
            behind = turns[at + 1 : at + 1 + len(due)]
            if turn["role"] != "tool" and due == {one.get("tool_call_id") for one in behind}:
                shown += [turn, *behind]
        return shown


class AckBeforeWrite(Sound):
    """Says done, and lets a thread do it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path
        self._queue: queue.Queue[tuple[str, list[dict[str, Any]], str | None]] = queue.Queue()
        self._written = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self._queue.put((session, messages, key))

    def _work(self) -> None:
        behind = Sound(self._path)
        while True:
            item = self._queue.get()
            time.sleep(0.02)  # as a slow disk would take
            behind.append(*item)


class NeverSyncs(Sound):
    """Says done when the kernel has it: enough for SIGKILL, and nothing on the disk."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("PRAGMA synchronous=OFF")


class Lossy(Sound):
    """Keeps text only: everything else becomes its words."""

    def encode(self, message: dict[str, Any]) -> str:
        return json.dumps({**message, "content": str(message["content"])})


class Resurrects(Sound):
    """A forget removes the keys as well, so that a late retry is taken for new."""

    def forget(self, session: str) -> None:
        super().forget(session)
        self.db.execute("DELETE FROM keys WHERE session = ?", (session,))


class ForgetsByPrefix(Sound):
    """A pattern where a name was meant."""

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM messages WHERE session LIKE ?", (session + "%",))


class OldestFirst(Sound):
    """The newest N, taken from the wrong end."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return super().history(session, None)[:limit]


class RetryDuplicates(Sound):
    """Takes a key and does not look at it."""

    def _is_new(self, session: str, key: str) -> bool:
        del session, key
        return True


class ShutsOut(Sound):
    """Its tenth write and all later ones are refused, for no reason at all."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._left = 10

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self._left -= 1
        if self._left <= 0:
            raise TimeoutError("somebody else kept the lock for too long")
        super().append(session, messages, key)


class SkipsDamaged(Sound):
    """A record that cannot be read is left out, and nobody is told."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return [*super().history(session, limit)]


class Opaque(Sound):
    """Compresses its records, so that nobody but itself knows where one begins."""

    def encode(self, message: dict[str, Any]) -> str:
        return zlib.compress(json.dumps(message).encode()).hex()

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        rows = self.db.execute(
            "SELECT body FROM messages WHERE session = ? ORDER BY n DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return Turns(_inflated(body) for (body,) in reversed(rows))


def _inflated(body: str) -> bytes:
    try:
        return zlib.decompress(bytes.fromhex(body))
    except (ValueError, zlib.error):
        return b"(not compressed)"


class OpaqueAndBrittle(Opaque):
    """One record that cannot be read, and the whole session is gone."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        found = super().history(session, limit)
        if getattr(found, "damaged", None):
            raise ValueError("not compressed")
        return found


class Hangs(Sound):
    """The third append never returns."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._count = 0

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self._count += 1
        if self._count > 2:
            threading.Event().wait()
        super().append(session, messages, key)


class Dies(Sound):
    """Takes its whole process with it."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del session, messages, key
        os.kill(os.getpid(), signal.SIGSEGV)


class SoundAsync:
    """The sound store behind awaits, and without a key."""

    def __init__(self, path: str) -> None:
        self._inner = Sound(path)

    async def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        self._inner.append(session, messages)

    async def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return self._inner.history(session, limit)

    async def forget(self, session: str) -> None:
        self._inner.forget(session)

    async def close(self) -> None:
        self._inner.close()


def _without_a_call_at_the_end(store: Sound, session: str) -> list[dict[str, Any]]:
    turns = store.history(session, None)
    return turns[:-1] if turns and "tool_calls" in turns[-1] else turns


def _file(
    kind: Callable[[str], Any], claims: Claims = KEEPS, **more: Any
) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        path = str(engine.url).removeprefix("sqlite:///")
        name = kind.__name__
        return Target(open=lambda: kind(path), engine=engine, claims=claims, name=name, **more)

    return target


def _opaque(kind: Callable[[str], Any], *, hook: bool) -> Callable[[Engine], Target]:
    """The same, with the way to damage a record that only whoever wrote the store knows."""

    def target(engine: Engine) -> Target:
        path = str(engine.url).removeprefix("sqlite:///")

        def tamper(session: str) -> None:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
                third = "SELECT n FROM messages WHERE session = ? ORDER BY n LIMIT 1 OFFSET 2"
                change = f"UPDATE messages SET body = substr(body, 1, 9) WHERE n = ({third})"
                db.execute(change, (session,))

        return Target(
            open=lambda: kind(path), engine=engine, claims=KEEPS, tamper=tamper if hook else None
        )

    return target


def _upgraded(kind: Callable[[str], Any]) -> Callable[[Engine], Target]:
    """The release before it was the sound store."""

    def target(engine: Engine) -> Target:
        path = str(engine.url).removeprefix("sqlite:///")
        return Target(
            open=lambda: kind(path), engine=engine, claims=KEEPS, previous=lambda: Sound(path)
        )

    return target


sound = _file(Sound)
skips_damaged = _file(SkipsDamaged)
opaque = _opaque(Opaque, hook=True)
opaque_without_a_hook = _opaque(Opaque, hook=False)
opaque_and_brittle = _opaque(OpaqueAndBrittle, hook=True)
reads_old_records = _upgraded(Sound)
cannot_read_old_records = _upgraded(Opaque)
sound_async = _file(
    SoundAsync,
    Claims(
        expiring=NotClaimed("we keep everything"),
        recallable=NotClaimed("there is no index"),
        exactly_once=NotClaimed("there is no key"),
    ),
)
keyless = _file(SoundAsync)
lost_update = _file(LostUpdate)
torn_batch = _file(TornBatch)
open_call = _file(Sound, whole_turns=lambda store, session: store.history(session, None))
trims_the_end = _file(Sound, whole_turns=_without_a_call_at_the_end)
refuses_open_calls = _file(
    RefusesOpenCalls, whole_turns=lambda s, session: s.history(session, None)
)
ack_before_write = _file(AckBeforeWrite)
never_syncs = _file(NeverSyncs)
lossy = _file(Lossy)
resurrects = _file(Resurrects)
forgets_by_prefix = _file(ForgetsByPrefix)
oldest_first = _file(OldestFirst)
retry_duplicates = _file(RetryDuplicates)
shuts_out = _file(ShutsOut)
hangs = _file(Hangs)
dies = _file(Dies)


def hangs_at_open(engine: Engine) -> Target:
    return Target(open=threading.Event().wait, engine=engine, claims=KEEPS)


def fails_at_open(engine: Engine) -> Target:
    def refuse() -> Any:
        raise ConnectionError("nobody is at home")

    return Target(open=refuse, engine=engine, claims=KEEPS)


not_a_target = Path("x")


def dies_at_open(engine: Engine) -> Target:
    def end() -> Any:
        os._exit(7)

    return Target(open=end, engine=engine, claims=KEEPS)
