"""Three careful stores on real engines, each as short as careful allows. No alarm may be raised.

They are what the broken twins are variations of: a twin changes one thing. `key` and `ttl_s`
are there where they are claimed.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.verify import Claims, NotClaimed

Turn = dict[str, Any]
NO_RECALL = NotClaimed("a log only")


class Turns(list[Turn]):
    """A history, and words about each record that could not be read."""

    def __init__(self, records: Sequence[str | bytes]) -> None:
        super().__init__()
        self.damaged: list[str] = []
        for record in records:
            try:
                self.append(json.loads(record))
            except ValueError as error:
                self.damaged.append(f"{record[:20]!r}…: {error}")


class Reads:
    """What a model is handed, of a store that has `history`."""

    history: Any

    def for_model(self, session: str) -> list[Turn]:
        """A message that calls tools is shown with all of its results right behind it, or not at all."""
        shown: list[Turn] = []
        turns = self.history(session)
        for at, turn in enumerate(turns):
            due = {call["id"] for call in turn.get("tool_calls", ())}
            behind = turns[at + 1 : at + 1 + len(due)]
            if turn["role"] != "tool" and due == {one.get("tool_call_id") for one in behind}:
                shown += [turn, *behind]
        return shown


class SqliteStore(Reads):
    """One table, one transaction a batch, order by the number that the engine gives."""

    engine: ClassVar = "sqlite"
    config: ClassVar[str | None] = None
    claims: ClassVar = Claims(
        expiring=NotClaimed("everything is kept until it is forgotten"), recallable=NO_RECALL
    )
    schema: ClassVar = (
        "CREATE TABLE message (n INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, record TEXT);"
        "CREATE TABLE request (session TEXT, key TEXT, PRIMARY KEY (session, key));"
    )

    @staticmethod
    def path(engine: Any) -> Any:
        return engine.path

    @classmethod
    def prepare(cls, engine: Any) -> None:
        with contextlib.closing(sqlite3.connect(cls.path(engine))) as db:
            db.executescript(cls.schema)

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        self.ttl_s = ttl_s
        self.db = sqlite3.connect(
            self.path(engine), timeout=10, isolation_level=None, check_same_thread=False
        )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # SQLite ends it by itself when the disk is full
                self.db.execute("ROLLBACK")
            raise

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        records = [self.encode(message) for message in messages]
        with self.transaction():
            if key is None or self.is_new(session, key):
                self.insert(session, records)

    def is_new(self, session: str, key: str) -> bool:
        done = self.db.execute("INSERT OR IGNORE INTO request VALUES (?, ?)", (session, key))
        return done.rowcount == 1

    def insert(self, session: str, records: list[str]) -> None:
        rows = [(session, record) for record in records]
        self.db.executemany("INSERT INTO message (session, record) VALUES (?, ?)", rows)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT record FROM message WHERE session = ? ORDER BY n DESC LIMIT ?"
        rows = self.db.execute(newest, (session, -1 if limit is None else limit)).fetchall()
        return self.decode([record for (record,) in reversed(rows)])

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM message WHERE session = ?", (session,))

    def close(self) -> None:
        self.db.close()

    def encode(self, message: Turn) -> str:
        return json.dumps(message)

    def decode(self, records: Sequence[str]) -> list[Turn]:
        return Turns(records)


class RedisStore(Reads):
    """One list a session; the push and its time to live are one script."""

    engine: ClassVar = "redis"
    config: ClassVar[str | None] = None
    claims: ClassVar = Claims(exactly_once=NotClaimed("an append has no key"), recallable=NO_RECALL)
    PUSH: ClassVar = """
        for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
        if ARGV[1] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
    """

    @classmethod
    def prepare(cls, engine: Any) -> None:
        """A list needs no schema."""

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        self.ttl_ms = round((ttl_s or 0) * 1000)
        # The driver's own retries would send an append again whose answer was lost.
        self.client: Any = redis.Redis.from_url(engine.url, retry=Retry(NoBackoff(), 0))

    def append(self, session: str, messages: list[Turn]) -> None:
        records = [self.encode(message) for message in messages]
        self.client.eval(self.PUSH, 1, self.key(session), self.ttl_ms, *records)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        return self.decode(self.client.lrange(self.key(session), -(limit or 0), -1))

    def forget(self, session: str) -> None:
        self.client.delete(self.key(session))

    def close(self) -> None:
        self.client.close()

    def key(self, session: str) -> str:
        return f"chat:{session}"

    def encode(self, message: Turn) -> str | bytes:
        return json.dumps(message)

    def decode(self, records: Sequence[bytes]) -> list[Turn]:
        return Turns(records)


class PostgresStore(Reads):
    """One table; the number is taken under a lock of the session, so that order is commit order."""

    engine: ClassVar = "postgres"
    config: ClassVar[str | None] = None
    claims: ClassVar = Claims(
        expiring=NotClaimed("everything is kept until it is forgotten"), recallable=NO_RECALL
    )
    schema: ClassVar = """
        CREATE TABLE message (n bigserial PRIMARY KEY, session text, record text);
        CREATE TABLE request (session text, key text, PRIMARY KEY (session, key));
        CREATE TABLE deleted (session text PRIMARY KEY);
    """
    LOCK: ClassVar = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

    @classmethod
    def prepare(cls, engine: Any) -> None:
        with psycopg.connect(engine.url, autocommit=True) as db:
            db.execute(cls.schema)

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        self.url, self.ttl_s = engine.url, ttl_s
        self._db: psycopg.Connection[Any] | None = None

    @property
    def db(self) -> psycopg.Connection[Any]:
        """A connection that works as far as is known; a broken one is replaced."""
        if self._db is None or self._db.closed:
            self._db = psycopg.connect(self.url, autocommit=True)
        return self._db

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        records = [self.encode(message) for message in messages]
        with self.db.transaction():
            self.db.execute(self.LOCK, (session,))
            if key is None or self.is_new(session, key):
                self.insert(session, records)

    def is_new(self, session: str, key: str) -> bool:
        add = "INSERT INTO request VALUES (%s, %s) ON CONFLICT DO NOTHING"
        return self.db.execute(add, (session, key)).rowcount == 1

    def insert(self, session: str, records: list[str]) -> None:
        for record in records:
            add = "INSERT INTO message (session, record) VALUES (%s, %s)"
            self.db.execute(add, (session, record))

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT record FROM message WHERE session = %s ORDER BY n DESC LIMIT %s"
        rows = self.db.execute(newest, (session, limit)).fetchall()
        return self.decode([record for (record,) in reversed(rows)])

    def forget(self, session: str) -> None:
        with self.db.transaction():
            self.db.execute(self.LOCK, (session,))
            self.db.execute("DELETE FROM message WHERE session = %s", (session,))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def encode(self, message: Turn) -> str:
        return json.dumps(message)

    def decode(self, records: Sequence[str]) -> list[Turn]:
        return Turns(records)


SOUND = (SqliteStore, RedisStore, PostgresStore)
