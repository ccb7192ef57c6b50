"""Users' stores that live by a clock: sound ones, and copies that trust it too much.

All claim that a session lives for seven days. The broken ones are those of the nights: a line
that says five minutes, and an order made of timestamps from application code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.redis_stores import SoundRedis
from tests.verify.check.stores import Sound

WEEK_S = 7 * 24 * 3600
FIVE_MINUTES_S = 5 * 60
CLAIMS = Claims(
    recallable=NotClaimed("there is no index"),
    exactly_once=NotClaimed("there is no key"),
    forgotten=NotClaimed("not what this is about"),
)
KEEPS = Claims(
    recallable=NotClaimed("there is no index"), expiring=NotClaimed("we keep everything")
)


class WeekFile(Sound):
    """One row a session says when it is over; the process that opens the file is the engine."""

    ttl_s = WEEK_S

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS ends (session PRIMARY KEY, at REAL)")

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del key
        self.db.execute("BEGIN IMMEDIATE")
        try:
            if not self._lives(session):
                self.db.execute("DELETE FROM messages WHERE session = ?", (session,))
            for message in messages:
                self._insert(session, self.encode(message))
            self._refresh(session)
            self.db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return super().history(session, limit) if self._lives(session) else []

    def _refresh(self, session: str) -> None:
        ends = (session, time.time() + self.ttl_s)
        self.db.execute("INSERT OR REPLACE INTO ends VALUES (?, ?)", ends)

    def _lives(self, session: str) -> bool:
        found = self.db.execute("SELECT at FROM ends WHERE session = ?", (session,)).fetchall()
        return bool(found) and time.time() < found[0][0]


class FiveMinutesFile(WeekFile):
    """The one changed line."""

    ttl_s = FIVE_MINUTES_S


class FirstWriteCounts(WeekFile):
    """A write does not refresh: the session ends a week after it began."""

    def _refresh(self, session: str) -> None:
        if not self._lives(session):
            super()._refresh(session)


class WeekRedis(SoundRedis):
    """The refresh is part of the write."""

    ttl_s = WEEK_S
    SCRIPT = """
    for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
    redis.call('EXPIRE', KEYS[1], ARGV[1])
    """

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del key
        name = session.encode("utf-8", "surrogatepass").hex()
        bodies = [json.dumps(message) for message in messages]
        self._redis.eval(self.SCRIPT, 1, f"m:{name}", str(self.ttl_s), *bodies)


class ExpiresNext(WeekRedis):
    """RPUSH, and then EXPIRE: a crash fits in between."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del key
        name = f"m:{session.encode('utf-8', 'surrogatepass').hex()}"
        self._redis.rpush(name, *[json.dumps(message) for message in messages])
        self._redis.expire(name, self.ttl_s)


class ExpiresNextBriefly(ExpiresNext):
    """The same for sessions of a second."""

    ttl_s = claims_s = 1


class NotesTheEndNext(WeekFile):
    """Two transactions: without the second a session has no end, and no end is for ever."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        del key
        Sound.append(self, session, messages)
        self._refresh(session)

    def _lives(self, session: str) -> bool:
        found = self.db.execute("SELECT at FROM ends WHERE session = ?", (session,)).fetchall()
        return not found or time.time() < found[0][0]


class FiveMinutesRedis(WeekRedis):
    """The one changed line."""

    ttl_s = FIVE_MINUTES_S


class ForEverRedis(SoundRedis):
    """The line is gone altogether."""


class WeekPostgres:
    """One row a message, numbered by the engine; one row a session says when it is over."""

    ends = "interval '7 days'"
    order = "n"

    def __init__(self, url: str) -> None:
        import psycopg  # noqa: PLC0415 - clients on another engine need not have it

        self._db = psycopg.connect(url, autocommit=True)
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(1)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS turns "
                "(n bigserial, session text, body text, created_at float8)"
            )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS ends (session text PRIMARY KEY, at timestamptz)"
            )

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        refresh = (
            f"INSERT INTO ends VALUES (%s, clock_timestamp() + {self.ends}) "
            "ON CONFLICT (session) DO UPDATE SET at = EXCLUDED.at"
        )
        with self._db.transaction():
            self._db.execute(refresh.encode(), (session,))  # its row lock keeps others out
            for message in messages:
                self._db.execute(
                    "INSERT INTO turns (session, body, created_at) VALUES (%s, %s, %s)",
                    (session, json.dumps(message), time.time()),
                )

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        rows = self._db.execute(
            "SELECT body FROM turns JOIN ends USING (session) WHERE session = %s AND at > now() "
            f"ORDER BY {self.order} DESC LIMIT %s".encode(),
            (session, limit),
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def forget(self, session: str) -> None:
        self._db.execute("DELETE FROM turns WHERE session = %s", (session,))

    def close(self) -> None:
        self._db.close()


class FiveMinutesPostgres(WeekPostgres):
    """The one changed line."""

    ends = "interval '5 minutes'"


class CreatedAtPostgres(WeekPostgres):
    """Timestamps made in application code say what came first."""

    order = "created_at"


class CreatedAtFile(Sound):
    """The same on a file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS turns (session, body, created_at REAL)")

    def _insert(self, session: str, body: str) -> None:
        self.db.execute("INSERT INTO turns VALUES (?, ?, ?)", (session, body, time.time()))

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        rows = self.db.execute(
            "SELECT body FROM turns WHERE session = ? ORDER BY created_at DESC, rowid DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM turns WHERE session = ?", (session,))


def _target(kind: Callable[[str], Any], *, keeps: bool = False) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        place = str(engine.url).removeprefix("sqlite:///")
        return Target(
            open=lambda: kind(place),
            engine=engine,
            claims=KEEPS if keeps else CLAIMS,
            name=kind.__name__,
            ttl_s=None if keeps else getattr(kind, "claims_s", WEEK_S),
        )

    return target


week_file = _target(WeekFile)
five_minutes_file = _target(FiveMinutesFile)
first_write_counts = _target(FirstWriteCounts)
week_redis = _target(WeekRedis)
expires_next = _target(ExpiresNext)
expires_next_briefly = _target(ExpiresNextBriefly)
notes_the_end_next = _target(NotesTheEndNext)
five_minutes_redis = _target(FiveMinutesRedis)
for_ever_redis = _target(ForEverRedis)
week_postgres = _target(WeekPostgres)
five_minutes_postgres = _target(FiveMinutesPostgres)
created_at_postgres = _target(CreatedAtPostgres)
created_at_file = _target(CreatedAtFile, keeps=True)
