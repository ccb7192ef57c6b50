"""9 expiring: on the server's clock, with the lock held, and swept in bounded bits."""

from __future__ import annotations

import threading

import psycopg

from holdfast import SessionState
from holdfast.backends.postgres import course
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
    monkeypatch.setattr(course, "SWEEP_MESSAGES_MAX", 10)
    monkeypatch.setattr(course, "SWEEP_INTERVAL_S", 0.0)
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
    monkeypatch.setattr(course, "SWEEP_INTERVAL_S", 0.0)
    store = connect(postgres_engine, query="reply_timeout_s=3")
    store.append("s", say("a"), ttl_s=0.05)
    wait_until(lambda: store.history("s").state is SessionState.EXPIRED)
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        store.append("other", say("does not wait"))
    assert admin.execute("SELECT count(*) FROM holdfast.messages").fetchone() == (2,)
    store.append("other", say("sweeps"))
    assert admin.execute("SELECT count(*) FROM holdfast.messages").fetchone() == (2,)
