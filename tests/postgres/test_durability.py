"""1 durable: an ack survives what the server's settings really give."""

from __future__ import annotations

import warnings
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Durability, Refused, StorageWarning
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore
from tests.waiting import wait_until

MEMORY, PROCESS, DISK, REPLICA = Durability
OFF = {"synchronous_commit": "off"}
STANDBY = {"synchronous_standby_names": "*"}


@pytest.mark.parametrize(
    ("settings", "require", "durability"),
    [
        ({}, MEMORY, DISK),
        ({}, DISK, DISK),
        ({"synchronous_commit": "local"}, DISK, DISK),
        (OFF, MEMORY, MEMORY),
        (OFF, PROCESS, DISK),
        (OFF, DISK, DISK),
        ({"fsync": "off"}, MEMORY, PROCESS),
        ({"fsync": "off"}, PROCESS, PROCESS),
        ({"fsync": "off", **OFF}, MEMORY, MEMORY),
        ({"fsync": "off", **OFF}, PROCESS, PROCESS),
        ({"synchronous_standby_names": "*", "synchronous_commit": "local"}, DISK, DISK),
    ],
)
def test_the_ack_names_what_the_settings_give(
    postgres_engine_factory: EngineFactory,
    connect: OpenStore,
    settings: dict[str, Any],
    require: Durability,
    durability: Durability,
):
    store = connect(postgres_engine_factory(settings=settings), require=require)
    assert store.durability is durability
    assert store.append("s", say("a")).durability is durability
    assert store.append("s", say("b"), key="k").durability is durability
    assert store.append("s", say("b"), key="k").durability is durability
    assert store.rewrite("s", [say("c")]).durability is durability


@pytest.mark.parametrize(
    ("settings", "require", "words"),
    [
        ({"fsync": "off"}, DISK, "Set fsync=on"),
        ({"fsync": "off", **OFF}, DISK, "Set fsync=on"),
        ({"fsync": "off"}, REPLICA, "Set fsync=on"),
        ({}, REPLICA, "synchronous_standby_names is empty"),
        (OFF, REPLICA, "synchronous_standby_names is empty"),
    ],
)
def test_a_durability_that_cannot_be_reached_is_refused_with_the_setting_to_change(
    postgres_engine_factory: EngineFactory,
    connect: OpenStore,
    settings: dict[str, Any],
    require: Durability,
    words: str,
):
    with pytest.raises(Refused, match=words):
        connect(postgres_engine_factory(settings=settings), require=require)


@pytest.mark.parametrize("whom", ["DATABASE postgres", "ROLE postgres"])
def test_a_database_or_role_that_commits_without_waiting_is_seen_and_raised(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, whom: str
):
    admin.execute(f"ALTER {whom} SET synchronous_commit = off".encode())
    assert connect(postgres_engine, require=MEMORY).append("s", say("a")).durability is MEMORY
    assert connect(postgres_engine).append("s", say("b")).durability is DISK


def test_the_durability_is_true_when_the_server_is_killed(
    postgres_engine_factory: EngineFactory, connect: OpenStore
):
    """The log is written out by nobody but the commit, so what did not wait for it is lost."""
    settings = {**OFF, "wal_writer_delay": "10s", "wal_writer_flush_after": "0"}
    engine = postgres_engine_factory(settings=settings)
    weak, strong = connect(engine, require=MEMORY), connect(engine, require=DISK)
    strong.append("s", say("first"))
    assert strong.append("s", say("kept")).durability is DISK
    assert weak.append("s", say("lost")).durability is MEMORY
    engine.kill()
    engine.start()
    assert texts(connect(engine).history("s")) == ["first", "kept"]


def test_a_server_that_no_longer_syncs_gets_no_more_writes(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("before"))
    admin.execute("ALTER SYSTEM SET fsync = off")
    admin.execute("SELECT pg_reload_conf()")
    wait_until(lambda: admin.execute("SHOW fsync").fetchone() == ("off",))

    def refused() -> bool:
        with psycopg.connect(postgres_engine.url) as fresh:
            return fresh.execute("SHOW fsync").fetchone() == ("off",)

    wait_until(refused)
    with pytest.raises(Refused, match="fsync is off"):
        for _ in range(100):  # a backend reads the new settings between two statements
            store.append("s", say("after"))
    admin.execute("ALTER SYSTEM RESET fsync")
    admin.execute("SELECT pg_reload_conf()")
    wait_until(lambda: admin.execute("SHOW fsync").fetchone() == ("on",))
    wait_until(lambda: _writes(store))


def _writes(store: holdfast.Store) -> bool:
    try:
        return store.append("s", say("again")).durability is DISK
    except Refused:
        return False


def test_replica_is_acknowledged_when_a_standby_has_it(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    standby = postgres_engine.replica()
    admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    admin.execute("ALTER SYSTEM SET synchronous_commit = 'local'")
    admin.execute("SELECT pg_reload_conf()")
    wait_until(lambda: admin.execute("SHOW synchronous_commit").fetchone() == ("local",))
    streaming = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_until(lambda: admin.execute(streaming).fetchone() == (1,))
    store = connect(postgres_engine, require=REPLICA)
    assert store.durability is REPLICA
    ack = store.append("s", say("on two machines"))
    assert ack.durability is REPLICA
    postgres_engine.kill()
    standby.query("SELECT pg_promote()")
    wait_until(lambda: standby.query("SELECT pg_is_in_recovery()") == [("f",)], within_s=30)
    promoted = connect(standby, require=DISK)
    assert texts(promoted.history("s")) == ["on two machines"]


def test_tables_that_are_emptied_after_a_crash_are_refused(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    connect(postgres_engine)
    admin.execute("ALTER TABLE holdfast.messages SET UNLOGGED")
    with pytest.raises(Refused, match=r"messages are UNLOGGED .* SET LOGGED"):
        connect(postgres_engine)


def test_a_server_that_cannot_repair_torn_pages_is_named(
    postgres_engine_factory: EngineFactory, connect: OpenStore
):
    with pytest.warns(StorageWarning, match="full_page_writes=on"):
        connect(postgres_engine_factory(settings={"full_page_writes": "off"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect(postgres_engine_factory())
