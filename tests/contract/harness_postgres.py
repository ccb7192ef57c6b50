"""PostgreSQL in the contract suite: one server for the run, a schema of its own for each test."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
from pathlib import Path

import psycopg

from holdfast import Durability
from holdfast.commands import sublogs_of
from holdfast.verify.engines import Engine, start_engine
from tests.wheels import start

_numbers = itertools.count(1)


@functools.cache
def engine(version: str | None = None) -> Engine:
    """Started for the first test that needs it, ended with the run. None: that of the system."""
    started = start_engine("postgres") if version is None else start("postgres", version)
    atexit.register(started.close)
    return started


class PostgresHarness:
    """A schema of its own."""

    level = Durability.DISK
    scrubs = False
    version: str | None = None

    def __init__(self, _folder: Path) -> None:
        self.engine = engine(self.version)
        self.schema = f"contract_{os.getpid()}_{next(_numbers)}"
        self.url = f"{self.engine.url}?schema={self.schema}"

    def tamper(self, session: str, seq: int, record: bytes) -> None:
        with psycopg.connect(self.engine.url) as connection:
            changed = connection.execute(
                self._on("UPDATE {}.messages SET record = %s WHERE {}"),
                (record, session.encode(), seq),
            )
            assert changed.rowcount == 1

    def raw(self, session: str, seq: int) -> bytes:
        with psycopg.connect(self.engine.url) as connection:
            [(record,)] = connection.execute(
                self._on("SELECT record FROM {}.messages WHERE {}"), (session.encode(), seq)
            ).fetchall()
        assert isinstance(record, bytes)
        return record

    def leftovers(self, text: bytes) -> list[str]:
        """Not looked for: what is deleted stays in the write-ahead log, and the store says so."""
        raise NotImplementedError

    def _on(self, statement: str) -> bytes:
        where = f"session = (SELECT id FROM {self.schema}.sessions WHERE name = %s) AND seq = %s"
        return statement.format(self.schema, where).encode()


class Postgres14Harness(PostgresHarness):
    """The oldest that is supported."""

    version = "14"


class Postgres16Harness(PostgresHarness):
    """As any other."""

    version = "16"


class Postgres17Harness(PostgresHarness):
    """As any other."""

    version = "17"


class PgvectorHarness(PostgresHarness):
    """A server that has pgvector."""

    version = ""

    def compared_by_engine(self, scope: str) -> int:
        """How many vectors of messages and memories of a scope the server has to compare."""
        session = scope.encode()
        with psycopg.connect(self.engine.url) as connection:
            [(count,)] = connection.execute(
                f"SELECT count(*) FROM {self.schema}.near WHERE session IN "
                f"(SELECT id FROM {self.schema}.sessions WHERE name = ANY (%s))".encode(),
                ([session, *sublogs_of(session)],),
            ).fetchall()
        return int(count)
