"""Memory stores as they are often written on PostgreSQL. Each loses something; none says so.

They are the stores of the second night (two requests, one forgotten message). All have
`append(session, messages)`, `history(session, limit)` and `forget(session)`; messages are
dictionaries. `pause` stands for the moment at which another request runs: the tests put one
there, production puts one there on a busy evening.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

Turn = dict[str, Any]
Pause = Callable[[], object]


def nothing() -> None:
    """No other request comes in between."""


class RowStore:
    """One row a message, `ORDER BY id`: what the broken ones below are variations of."""

    TABLE = (
        "CREATE TABLE IF NOT EXISTS turns (id bigserial PRIMARY KEY, session text, role text,"
        " content text, created_at timestamptz)"
    )
    NEWEST = "SELECT role, content FROM turns WHERE session = %s ORDER BY id DESC LIMIT %s"

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SELECT pg_advisory_lock(1)")
        self.connection.execute(self.TABLE.encode())
        self.connection.execute("SELECT pg_advisory_unlock(1)")

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        for message in messages:
            self.insert(self.connection, session, message, self.now())
        pause()

    def insert(
        self, connection: psycopg.Connection, session: str, message: Turn, at: datetime
    ) -> None:
        connection.execute(
            "INSERT INTO turns (session, role, content, created_at) VALUES (%s, %s, %s, %s)",
            (session, message["role"], message["content"], at),
        )

    def now(self) -> datetime:
        return datetime.now(UTC)

    def history(self, session: str, limit: int = 100) -> list[Turn]:
        rows = self.connection.execute(self.NEWEST.encode(), (session, limit)).fetchall()
        return [{"role": role, "content": content} for role, content in reversed(rows)]

    def forget(self, session: str) -> None:
        self.connection.execute("DELETE FROM turns WHERE session = %s", (session,))

    def close(self) -> None:
        self.connection.close()


class AppClockStore(RowStore):
    """Orders by `created_at`, made in application code: clocks differ, and requests overtake."""

    NEWEST = "SELECT role, content FROM turns WHERE session = %s ORDER BY created_at DESC LIMIT %s"

    def __init__(self, url: str, clock: Callable[[], datetime] | None = None) -> None:
        super().__init__(url)
        self.clock = clock or super().now

    def now(self) -> datetime:
        return self.clock()

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        at = self.now()  # when the request came in
        pause()
        for message in messages:
            self.insert(self.connection, session, message, at)


class ReplicaReadingStore(RowStore):
    """Writes to the primary and reads from a replica, "to take load off"."""

    def __init__(self, url: str, replica_url: str) -> None:
        super().__init__(url)
        self.replica = psycopg.connect(replica_url, autocommit=True)

    def history(self, session: str, limit: int = 100) -> list[Turn]:
        rows = self.replica.execute(self.NEWEST.encode(), (session, limit)).fetchall()
        return [{"role": role, "content": content} for role, content in reversed(rows)]

    def close(self) -> None:
        self.replica.close()
        super().close()


class ContextBuilder(RowStore):
    """Assembles a prompt in one transaction: first the older half, then the newer half.

    The transaction is READ COMMITTED, the default: each statement sees another moment.
    """

    def context(self, session: str, *, pause: Pause = nothing) -> list[str]:
        with self.connection.transaction():
            [(count,)] = self.connection.execute(
                "SELECT count(*) FROM turns WHERE session = %s", (session,)
            ).fetchall()
            older = self._part(session, 0, count // 2)
            pause()
            return older + self._part(session, count // 2, count)

    def _part(self, session: str, begin: int, end: int) -> list[str]:
        rows = self.connection.execute(
            "SELECT content FROM turns WHERE session = %s ORDER BY id OFFSET %s LIMIT %s",
            (session, begin, end - begin),
        ).fetchall()
        return [content for (content,) in rows]

    def replace(self, session: str, messages: Sequence[Turn]) -> None:
        """An edit or a compaction: all rows of the session anew, in one transaction."""
        with self.connection.transaction():
            self.forget(session)
            self.append(session, messages)


class SerialCursorStore(RowStore):
    """Readers follow by the last id that they saw. Ids are taken before the commit, though."""

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        with self.connection.transaction():
            for message in messages:
                self.insert(self.connection, session, message, self.now())
            pause()

    def after(self, session: str, cursor: int) -> list[tuple[int, str]]:
        rows = self.connection.execute(
            "SELECT id, content FROM turns WHERE session = %s AND id > %s ORDER BY id",
            (session, cursor),
        ).fetchall()
        return [(number, content) for number, content in rows]


class OverwriteStore:
    """The whole conversation as one JSON value: read it, add to it, write it back."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("SELECT pg_advisory_lock(1)")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS memory (session text PRIMARY KEY, turns jsonb)"
        )
        self.connection.execute("SELECT pg_advisory_unlock(1)")

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        turns = [*self.history(session), *messages]
        pause()
        self.connection.execute(
            "INSERT INTO memory VALUES (%s, %s) ON CONFLICT (session) DO UPDATE SET turns = excluded.turns",
            (session, json.dumps(turns)),
        )

    def history(self, session: str, limit: int = 100) -> list[Turn]:
        row = self.connection.execute(
            "SELECT turns FROM memory WHERE session = %s", (session,)
        ).fetchone()
        return list(row[0])[-limit:] if row else []

    def forget(self, session: str) -> None:
        self.connection.execute("DELETE FROM memory WHERE session = %s", (session,))

    def close(self) -> None:
        self.connection.close()
