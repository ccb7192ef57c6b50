"""9 expiring: on the server's clock, with the lock held, and swept in bounded bits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import SessionState
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore
from tests.waiting import wait_until

LOCK = "SELECT * FROM holdfast.sessions WHERE name = 's' FOR UPDATE"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def test_the_time_counts_from_when_the_lock_was_won(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("a"), ttl_s=3600)
    for key in (None, "k"):
        with psycopg.connect(postgres_engine.url) as holder:
            holder.execute(LOCK)
            thread = threading.Thread(
                target=lambda key=key: store.append("s", say("b"), key=key, ttl_s=60)
            )
            thread.start()
            wait_until(lambda: admin.execute(WAITING).fetchone() == (1,))
            released = admin.execute("SELECT pg_sleep(0.2), clock_timestamp()").fetchone()
        thread.join()
        assert released is not None
        expires_at = store.stat("s").expires_at
        assert expires_at is not None
        assert (expires_at - released[1]).total_seconds() >= 60


def test_a_session_that_expired_while_a_write_waited_begins_anew(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", [say("old"), say("older")], ttl_s=0.3)
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        thread = threading.Thread(target=lambda: store.append("s", say("new")))
        thread.start()
        wait_until(lambda: admin.execute(WAITING).fetchone() == (1,))
        wait_until(lambda: store.history("s").state is SessionState.EXPIRED)
    thread.join()
    assert texts(store.history("s")) == ["new"]
    assert store.history("s")[0].seq == 3


def test_expired_room_is_freed_in_bounded_bits_and_never_half_seen(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, monkeypatch
):
    monkeypatch.setattr("holdfast.backends.postgres.command_steps.SWEEP_MESSAGES_MAX", 10)
    monkeypatch.setattr("holdfast.backends.postgres.command_steps.SWEEP_INTERVAL_S", 0.0)
    store = connect(postgres_engine)
    store.append("s", [say(str(n)) for n in range(35)], key="k", ttl_s=0.05)
    wait_until(lambda: store.history("s").state is SessionState.EXPIRED)
    left = "SELECT count(*) FROM holdfast.messages m JOIN holdfast.sessions s ON s.id = m.session WHERE s.name = 's'"
    counts = []
    for turn in range(6):
        store.append("other", say(str(turn)))
        counts.append(admin.execute(left).fetchone())
        assert len(store.history("s")) == 0
        assert store.stat("s").state is SessionState.EXPIRED
    assert counts == [(25,), (15,), (5,), (0,), (0,), (0,)]
    assert store.append("s", say("late retry"), key="k").repeated
    assert store.append("s", say("new")).first == 36


def test_a_sweep_leaves_alone_what_somebody_works_on(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, monkeypatch
):
    monkeypatch.setattr("holdfast.backends.postgres.command_steps.SWEEP_INTERVAL_S", 0.0)
    store = connect(postgres_engine, query="reply_timeout_s=3")
    store.append("s", say("a"), ttl_s=0.05)
    wait_until(lambda: store.history("s").state is SessionState.EXPIRED)
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        store.append("other", say("does not wait"))
    assert admin.execute("SELECT count(*) FROM holdfast.messages").fetchone() == (2,)
    store.append("other", say("sweeps"))
    assert admin.execute("SELECT count(*) FROM holdfast.messages").fetchone() == (2,)


EXPLAINED = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_analyze = on;
SET auto_explain.log_timing = off;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_level = notice;
SET auto_explain.log_format = json
"""


def scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan that reads sessions."""
    if node.get("Relation Name") == "sessions":
        yield node
    for part in node.get("Plans", ()):
        yield from scans(part)


@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never analyzed"])
def test_a_sweep_looks_at_no_session_that_is_alive(
    postgres_engine: PostgresEngine,
    admin: psycopg.Connection,
    connect: OpenStore,
    *,
    analyzed: bool,
):
    """By the plans of the statements in the function as they were carried out, call after call."""
    connect(postgres_engine).close()
    plans: list[dict[str, Any]] = []
    admin.add_notice_handler(
        lambda notice: plans.append(json.loads(str(notice.message_primary).partition("plan:")[2]))
    )
    admin.execute("ALTER TABLE holdfast.sessions SET (autovacuum_enabled = off)")
    admin.execute(
        "INSERT INTO holdfast.sessions (namespace, name, last, ttl_ms, expires_ms) "
        "SELECT 'many', convert_to('s' || n, 'UTF8'), 1, 3600000, "
        "CASE WHEN n = 7 THEN 1 ELSE 4000000000000 + n END FROM generate_series(1, 20000) n"
    )
    if analyzed:
        admin.execute("ANALYZE holdfast.sessions")
    admin.execute(EXPLAINED)
    swept = [admin.execute("SELECT holdfast.sweep(1000)").fetchone() for _ in range(8)]
    admin.execute("SET auto_explain.log_min_duration = -1")
    assert swept == [(True,)] + [(False,)] * 7
    looked = [scan for plan in plans for scan in scans(plan["Plan"])]
    assert len(looked) >= 8
    for scan in looked:
        removed = scan.get("Rows Removed by Filter", 0)
        assert scan["Node Type"] in {"Index Scan", "ModifyTable"}, scan
        assert scan["Actual Rows"] + removed <= 1, scan
