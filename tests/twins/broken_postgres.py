"""Broken stores on PostgreSQL. Each docstring says how people come to write it."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg

from tests.twins.sound import PostgresStore, Turn


class NoOrderBy(PostgresStore):
    """Rows come back as they were inserted, until one of them is updated."""

    promise: ClassVar = "ordered"
    caught_by: ClassVar = ("test_every_read_shows_one_order",)

    def insert(self, session: str, records: list[str]) -> None:
        super().insert(session, records)
        first = "SELECT min(n) FROM message WHERE session = %s"
        # "Remember that this conversation was used": every update moves a row.
        self.db.execute(f"UPDATE message SET record = record WHERE n = ({first})", (session,))

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        rows = self.db.execute("SELECT record FROM message WHERE session = %s", (session,))
        records = [record for (record,) in rows]
        return self.decode(records[-limit:] if limit else records)


class RowByRow(PostgresStore):
    """Autocommit is on, and nobody opens a transaction for a batch."""

    promise: ClassVar = "atomic"
    caught_by: ClassVar = ("test_no_reader_sees_part_of_a_batch",)

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        if key is None or self.is_new(session, key):
            for message in messages:
                self.insert(session, [self.encode(message)])


class CheckThenInsert(PostgresStore):
    """SELECT whether the key is there, INSERT if not: two requests may both find it missing."""

    promise: ClassVar = "exactly-once"
    caught_by: ClassVar = ("test_of_simultaneous_tries_with_one_key_exactly_one_adds",)
    schema: ClassVar = PostgresStore.schema.replace(", PRIMARY KEY (session, key)", "")

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        find = "SELECT 1 FROM request WHERE session = %s AND key = %s"
        if self.db.execute(find, (session, key)).fetchone() is None:
            with self.db.transaction():
                self.db.execute("INSERT INTO request VALUES (%s, %s)", (session, key))
                super().append(session, messages)


class SnapshotForEver(PostgresStore):
    """Reads have a connection of their own, REPEATABLE READ, and nobody ends the transaction."""

    promise: ClassVar = "fresh"
    caught_by: ClassVar = ("test_a_client_sees_what_another_process_wrote",)

    def __init__(self, engine: Any, ttl_s: float | None = None) -> None:
        super().__init__(engine, ttl_s)
        self.reader: psycopg.Connection[Any] = psycopg.connect(self.url)
        self.reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT record FROM message WHERE session = %s ORDER BY n DESC LIMIT %s"
        rows = self.reader.execute(newest, (session, limit)).fetchall()
        return self.decode([record for (record,) in reversed(rows)])

    def close(self) -> None:
        self.reader.close()
        super().close()


class LikeRead(PostgresStore):
    """LIKE was for the search page; `foo` also finds `foobar`."""

    promise: ClassVar = "isolated"
    caught_by: ClassVar = ("test_ids_of_any_kind_stay_apart",)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        newest = "SELECT record FROM message WHERE session LIKE %s ORDER BY n DESC LIMIT %s"
        rows = self.db.execute(newest, (session + "%", limit)).fetchall()
        return self.decode([record for (record,) in reversed(rows)])


class SoftDelete(PostgresStore):
    """Forgetting sets a flag; the next write to the session takes it away again."""

    promise: ClassVar = "forgotten"
    caught_by: ClassVar = ("test_a_new_beginning_has_nothing_of_the_old",)

    def insert(self, session: str, records: list[str]) -> None:
        self.db.execute("DELETE FROM deleted WHERE session = %s", (session,))
        super().insert(session, records)

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        flag = self.db.execute("SELECT 1 FROM deleted WHERE session = %s", (session,))
        return [] if flag.fetchone() else super().history(session, limit)

    def forget(self, session: str) -> None:
        self.db.execute("INSERT INTO deleted VALUES (%s) ON CONFLICT DO NOTHING", (session,))


class NeverReconnects(PostgresStore):
    """The connection is made once, when the service starts."""

    promise: ClassVar = "loud"
    caught_by: ClassVar = ("test_the_store_works_again_when_the_engine_is_back",)

    @property
    def db(self) -> psycopg.Connection[Any]:
        if self._db is None:
            self._db = psycopg.connect(self.url, autocommit=True)
        return self._db


class FalseAckWithoutConnection(PostgresStore):
    """No connection is free just now: logged, and the turn goes on as if it were saved."""

    promise: ClassVar = "loud"
    caught_by: ClassVar = ("test_no_free_connection_is_an_error",)

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        try:
            super().append(session, messages, key)
        except psycopg.OperationalError as error:
            if "clients" not in str(error) and "slots" not in str(error):
                raise


BROKEN = (
    NoOrderBy, RowByRow, CheckThenInsert, SnapshotForEver, LikeRead, SoftDelete, NeverReconnects,
    FalseAckWithoutConnection,
)  # fmt: skip
