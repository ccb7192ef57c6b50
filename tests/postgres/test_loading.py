"""Constraints of the tables, and a schema that an older release let be filled with nonsense."""

from __future__ import annotations

import psycopg
import pytest

import holdfast
from holdfast import Message
from holdfast.backends.postgres import migration
from tests.contract.harness_postgres import PostgresHarness

MAX = 4294967295


@pytest.fixture
def harness(tmp_path) -> PostgresHarness:
    return PostgresHarness(tmp_path)


def fill(harness: PostgresHarness) -> None:
    with holdfast.connect(harness.url) as store:
        for name in ("a", "b"):
            store.append(name, [Message("user", "1"), Message("user", "2")], key="k")


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE sessions SET last = {MAX + 1}",
        "UPDATE sessions SET floor = -1",
        "UPDATE sessions SET floor = last + 1",
        "UPDATE sessions SET bytes = -1",
        "UPDATE sessions SET state = 'expired'",
        "UPDATE sessions SET ttl_ms = 0",
        "UPDATE sessions SET ttl_ms = 9007199254740993",
        "UPDATE sessions SET expires_ms = -1",
        "UPDATE sessions SET expires_ms = 9007199254740993",
        "INSERT INTO messages SELECT id, 0, '' FROM sessions",
        f"INSERT INTO messages SELECT id, {MAX + 1}, '' FROM sessions",
        "INSERT INTO keys SELECT id, '', 1, 1 FROM sessions",
        "INSERT INTO keys SELECT id, '0123456789abcdef', 0, 1 FROM sessions",
        "INSERT INTO keys SELECT id, '0123456789abcdef', 2, 1 FROM sessions",
        f"INSERT INTO keys SELECT id, '0123456789abcdef', 1, {MAX + 1} FROM sessions",
    ],
)
def test_the_tables_refuse_numbers_that_no_session_has(harness: PostgresHarness, statement: str):
    fill(harness)
    with psycopg.connect(harness.engine.url) as connection:
        connection.execute(f"SET search_path = {harness.schema}".encode())
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(statement.encode())


def test_a_schema_that_was_poisoned_is_made_harmless(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(migration, "SCHEMA_VERSION", 2)
        fill(harness)
    with psycopg.connect(harness.engine.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {harness.schema}".encode())
        connection.execute(
            b"""
            INSERT INTO sessions (namespace, name, floor, last, bytes, ttl_ms, expires_ms, state)
            VALUES ('default', 'wide', -7, 1099511627776, -1, -5, 99999999999999999, 'live'),
                   ('default', 'over', 0, 2, 6, NULL, NULL, 'expired')
            """
        )
        connection.execute(
            b"INSERT INTO messages SELECT id, last, 'SECRET' FROM sessions WHERE name IN ('wide', 'over')"
        )
    with holdfast.connect(harness.url) as store:
        assert [m.content for m in store.history("a")] == ["1", "2"]
        assert store.append("a", Message("user", "1"), key="k").repeated
        assert store.append("over", Message("user", "new")).first == 3
        assert [m.content for m in store.history("over")] == ["new"]
        store.forget("wide")
        assert "SECRET" not in "".join(store.export())
    with psycopg.connect(harness.engine.url) as connection:
        left = f"SELECT count(*) FROM {harness.schema}.messages WHERE record = 'SECRET'"
        assert connection.execute(left.encode()).fetchone() == (0,)
