"""5 fresh: a replica never gives a stale answer to whoever wrote, or holds the writer's ack."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Ack, Durability, Refused, SessionState, UsageError
from holdfast.backends.postgres.address import read_address
from holdfast.backends.postgres.migration import check_replica
from holdfast.verify.engines.postgres import PostgresEngine, PostgresReplica
from tests.contract.harness import AsyncApi, say, texts
from tests.postgres.conftest import OpenStore


@pytest.fixture
def replica(postgres_engine: PostgresEngine, connect: OpenStore) -> PostgresReplica:
    connect(postgres_engine).append("old", say("there before"))
    return postgres_engine.replica()


def texts_on(replica: PostgresReplica, session: str) -> list[str]:
    with psycopg.connect(replica.url) as plain:
        rows = plain.execute(
            "SELECT convert_from(record, 'UTF8')::json -> 'msg' ->> 'content' FROM holdfast.messages m "
            "JOIN holdfast.sessions s ON s.id = m.session WHERE s.name = %s ORDER BY m.seq",
            (session.encode(),),
        ).fetchall()
    return [text for (text,) in rows]


def test_a_reader_without_an_ack_is_answered_by_the_replica(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    """Shown by its being behind, which nobody promised otherwise: the load is off the primary."""
    reader = connect(postgres_engine, replicas=[replica.url])
    replica.resume_replay()  # returns when it has all that the primary had when this one connected
    replica.pause_replay()
    connect(postgres_engine).append("old", say("new"))
    assert texts(reader.history("old")) == ["there before"]
    replica.resume_replay()
    assert texts(reader.history("old")) == ["there before", "new"]


def test_a_writer_reads_its_own_write_while_replay_is_paused(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    store = connect(postgres_engine, replicas=[replica.url])
    replica.pause_replay()
    for turn in range(3):
        ack = store.append("s", say(str(turn)))
        assert ack.token is not None
        assert texts(store.history("s")) == [str(turn) for turn in range(turn + 1)]
    store.rewrite("s", say("summary"))
    assert texts(store.history("s")) == ["summary"]
    store.forget("s")
    assert texts(store.history("s")) == []
    assert texts_on(replica, "s") == [], "the replica did have it, so nothing was shown"
    replica.resume_replay()


def test_another_client_with_the_ack_never_sees_less_than_it(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    writer = connect(postgres_engine, replicas=[replica.url])
    reader = connect(postgres_engine, replicas=[replica.url])
    replica.resume_replay()
    replica.pause_replay()
    ack = writer.append("s", say("fresh"))
    begin = time.monotonic()
    assert texts(reader.history("s", seen=ack)) == ["fresh"]
    assert time.monotonic() - begin < 5, "the wait for the replica has a bound"
    assert texts_on(replica, "s") == [], "it was the primary that answered"
    replica.resume_replay()
    assert texts(reader.history("s", seen=ack)) == ["fresh"]


def test_a_delayed_replica_is_waited_for_and_then_answers_itself(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    replica.resume_replay()
    store = connect(postgres_engine, replicas=[replica.url])
    replica.delay(0.1)
    store.append("s", say("a"))
    begin = time.monotonic()
    assert texts(store.history("s")) == ["a"]
    waited_s = time.monotonic() - begin
    assert texts_on(replica, "s") == ["a"], "the read came back before the replica had it"
    assert waited_s >= 0.05


def test_no_read_is_ever_stale_under_load_and_a_flickering_replica(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    """Every ack is handed to another client at once; what it then reads must hold that write."""
    writers = [connect(postgres_engine, replicas=[replica.url]) for _ in range(2)]
    reader = connect(postgres_engine, replicas=[replica.url])
    acks: list[Ack] = []
    stale: list[str] = []
    done = threading.Event()

    def flicker() -> None:
        while not done.is_set():
            replica.pause_replay()
            replica.query("SELECT pg_wal_replay_resume()")

    def write(number: int) -> None:
        for turn in range(60):
            ack = writers[number].append(f"s{number}", say(str(turn)))
            acks.append(ack)
            for store, seen in ((reader, ack), (writers[number], None)):
                history = store.history(f"s{number}", limit=3, seen=seen)
                if history.last < ack.last:
                    stale.append(f"{ack} but the history ends at {history.last}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    flickering = threading.Thread(target=flicker)
    flickering.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    flickering.join()
    assert len(acks) == 120
    assert stale == []


def test_the_async_api_reads_its_own_writes_too(
    postgres_engine: PostgresEngine, replica: PostgresReplica
):
    async def scenario() -> None:
        settings = {"replicas": [replica.url]}
        async with await holdfast.connect_async(postgres_engine.url, **settings) as store:  # type: ignore[arg-type]
            replica.pause_replay()
            ack = await store.append("s", say("a"))
            assert texts(await store.history("s")) == ["a"]
            assert texts(await store.history("s", seen=ack)) == ["a"]
            replica.resume_replay()
            assert texts(await store.history("s")) == ["a"]

    asyncio.run(scenario())


@pytest.mark.parametrize("api", [holdfast.connect, AsyncApi])
def test_what_was_there_when_a_client_connected_is_never_missing_from_what_it_reads(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore, api: Any
):
    """It has written nothing and holds no ack: an agent that is started again and asks for its past."""
    replica.resume_replay()
    replica.pause_replay()
    connect(postgres_engine).append("s", say("yesterday"))
    with api(postgres_engine.url, replicas=[replica.url]) as reader:
        assert reader.history("s").state is SessionState.LIVE
        assert texts(reader.history("s")) == ["yesterday"]
        begin = time.monotonic()
        for _ in range(10):
            assert texts(reader.history("s")) == ["yesterday"]
        assert time.monotonic() - begin < 1, "each read waited for a replica that is behind"
        replica.resume_replay()
        assert texts(reader.history("s")) == ["yesterday"]


def test_an_ack_without_a_token_sends_the_read_to_the_primary(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    replica.pause_replay()
    ack = connect(postgres_engine).append("s", say("by one without replicas"))
    assert ack.token is None
    reader = connect(postgres_engine, replicas=[replica.url])
    assert texts(reader.history("s", seen=ack)) == ["by one without replicas"]


def test_an_ack_of_another_engine_is_the_caller_s_mistake(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    store = connect(postgres_engine, replicas=[replica.url])
    with pytest.raises(UsageError, match="another engine"):
        store.history("s", seen=Ack("s", 1, 1, Durability.DISK, "17-3"))


def test_the_primary_answers_while_the_replica_is_down_and_the_replica_when_it_is_back(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    store = connect(postgres_engine, replicas=[replica.url])
    store.append("s", say("a"))
    replica.kill()
    begin = time.monotonic()
    for turn in range(20):
        store.append("s", say(str(turn)))
        assert texts(store.history("s"))[-1] == str(turn)
    assert time.monotonic() - begin < 5, "a replica that is down is not asked again and again"
    connect(postgres_engine, replicas=[replica.url]).append("s", say("opened while it is down"))
    replica.start()
    assert texts(store.history("s"))[-1] == "opened while it is down"


def test_a_clock_of_a_replica_does_not_decide_what_has_expired(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    """Near to its expiry a session is read from the primary, whatever the replica has."""
    store = connect(postgres_engine, replicas=[replica.url])
    store.append("soon", say("a"), ttl_s=30)
    store.append("late", say("a"), ttl_s=3600)
    reader = connect(postgres_engine, replicas=[replica.url])
    replica.resume_replay()  # returns when it has both
    replica.pause_replay()
    other = connect(postgres_engine)
    other.append("soon", say("b"))
    other.append("late", say("b"))
    assert texts(reader.history("soon")) == ["a", "b"], "the primary answered"
    assert texts(reader.history("late")) == ["a"], "the replica answered"
    replica.resume_replay()


def test_the_primary_is_no_replica_of_itself(postgres_engine: PostgresEngine, connect: OpenStore):
    with pytest.raises(Refused, match="no replica of the primary: it is no standby"):
        connect(postgres_engine, replicas=[postgres_engine.url])


def test_a_standby_of_another_cluster_is_refused(replica: PostgresReplica):
    """All servers here are made from one template, so the other cluster is one of another name."""
    with psycopg.connect(replica.url) as plain:
        own = plain.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    address = read_address(replica.url)
    assert own is not None
    check_replica(address, own[0])
    with pytest.raises(Refused, match="another database cluster"):
        check_replica(address, "7000000000000000000")


def test_a_replica_that_was_promoted_is_not_read(
    postgres_engine: PostgresEngine, replica: PostgresReplica, connect: OpenStore
):
    store = connect(postgres_engine, replicas=[replica.url])
    replica.query("SELECT pg_promote()")
    replica.query("DELETE FROM holdfast.messages")
    assert texts(store.history("old")) == ["there before"]
