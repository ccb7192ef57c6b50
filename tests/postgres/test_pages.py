"""6 snapshot: pages are stable under concurrent appends, and cost the same however long the log."""

from __future__ import annotations

import threading

import psycopg

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore


def test_pages_read_while_others_write_hold_each_message_once(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store, writer = connect(postgres_engine), connect(postgres_engine)
    store.append("s", [say(str(n)) for n in range(300)])
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            writer.append("s", say("meanwhile"))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            pages: list[str] = []
            before: int | None = store.history("s", limit=1).last + 1
            while before is not None and before > 1:
                page = store.history("s", limit=50, before=before)
                pages = texts(page) + pages
                before = page[0].seq
            assert pages[:300] == [str(n) for n in range(300)]
            assert set(pages[300:]) <= {"meanwhile"}
    finally:
        done.set()
        thread.join()


def test_the_newest_page_touches_as_much_of_a_long_session_as_of_a_short_one(
    postgres_engine_factory: EngineFactory, connect: OpenStore
):
    """Also by a plan that the server made while the table was tiny, and kept."""
    engine = postgres_engine_factory(settings={"autovacuum": "off"})
    store = connect(engine, query="pool_max=1")
    admin = psycopg.connect(engine.url, autocommit=True)
    store.append("short", [say("x")] * 60)
    admin.execute("ANALYZE")

    def touched(session: str) -> int:
        count = "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) FROM pg_statio_user_tables"
        settle = "SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()"
        server = store._backend._servers[-1]  # type: ignore[attr-defined]
        [connection] = server._idle  # the one that reads
        connection.execute(settle)
        admin.execute(settle)
        [(before,)] = admin.execute(count).fetchall()
        assert len(store.history(session, limit=50)) == 50
        connection.execute(settle)
        admin.execute(settle)
        [(after,)] = admin.execute(count).fetchall()
        return int(after - before)

    for _ in range(10):
        store.history("short", limit=50)
    before_growth = touched("short")
    for _ in range(10):
        store.append("long", [say("x" * 50)] * 3000)
        store.append("other", [say("x" * 50)] * 1000)
    assert touched("short") <= 2 * before_growth + 20
    assert touched("long") <= 2 * before_growth + 20
    admin.close()


def test_a_replica_is_looked_at_before_the_snapshot_and_a_page_is_of_one(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    """Each function's kind of volatility is what makes it right; no race here would be hit by chance."""
    connect(postgres_engine)
    kinds = admin.execute(
        "SELECT proname, provolatile FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace"
    ).fetchall()
    kind_of = {str(name): str(kind) for name, kind in kinds}
    assert kind_of["read_at"] == "v", "its query must take a snapshot after the check"
    assert kind_of["read"] == "s", "its queries must share the snapshot of the statement"
