"""11 loud: what a full disk and a lost answer mean, on the real thing."""

from __future__ import annotations

import os
import shutil

import psycopg
import pytest

import holdfast
from holdfast import EngineFull, EngineUnreachable, OutcomeUnknown
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.faults import Proxy, SmallDisk
from holdfast.verify.run_as import run_as_ids
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_is_definite_and_the_store_goes_on_when_there_is_room(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("before"))
    with SmallDisk(size_bytes=16 * 1024 * 1024) as disk:
        place = disk.path / "messages"
        place.mkdir()
        shutil.chown(place, *run_as_ids())
        admin.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        admin.execute("ALTER TABLE holdfast.messages SET TABLESPACE small")
        disk.fill()
        batch = [say(os.urandom(4000).hex()) for _ in range(100)]
        with pytest.raises(EngineFull, match="nothing was written"):
            store.append("s", batch, key="k")
        with pytest.raises(EngineFull):
            store.rewrite("s", batch)
        assert texts(store.history("s")) == ["before"]
        disk.release()
        ack = store.append("s", batch, key="k")
        assert (ack.first, ack.repeated) == (2, False)
        assert len(store.history("s")) == 101
        store.close()
        admin.execute("ALTER TABLE holdfast.messages SET TABLESPACE pg_default")
        admin.execute("DROP TABLESPACE small")


def test_a_write_whose_answer_was_lost_is_unknown_and_a_retry_adds_nothing(
    postgres_engine: PostgresEngine,
):
    with Proxy(postgres_engine.url) as proxy, holdfast.connect(proxy.url) as store:
        store.append("s", say("before"))
        lost = proxy.swallow_reply(match=b".append(")
        with pytest.raises(OutcomeUnknown, match="same key"):
            store.append("s", say("its answer is lost"), key="k")
        lost.landed()
        assert store.append("s", say("its answer is lost"), key="k").repeated
        assert texts(store.history("s")) == ["before", "its answer is lost"]


def test_a_write_that_never_arrived_is_unknown_and_a_retry_adds_it(
    postgres_engine: PostgresEngine,
):
    with Proxy(postgres_engine.url) as proxy, holdfast.connect(proxy.url) as store:
        store.append("s", say("before"))
        lost = proxy.swallow_request(match=b".append(")
        with pytest.raises(OutcomeUnknown, match="same key"):
            store.append("s", say("never arrived"), key="k")
        lost.landed()
        assert not store.append("s", say("never arrived"), key="k").repeated
        assert texts(store.history("s")) == ["before", "never arrived"]


def test_a_read_whose_answer_was_lost_is_simply_made_again(postgres_engine: PostgresEngine):
    with Proxy(postgres_engine.url) as proxy, holdfast.connect(proxy.url) as store:
        store.append("s", say("a"))
        lost = proxy.swallow_reply(match=b".page(")
        assert texts(store.history("s")) == ["a"]
        lost.landed()


def test_a_server_that_refuses_connections_is_unreachable_and_nothing_was_sent(
    postgres_engine: PostgresEngine,
):
    url = postgres_engine.url
    postgres_engine.stop()
    with pytest.raises(EngineUnreachable, match="refused"):
        holdfast.connect(url)
