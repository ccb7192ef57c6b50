"""Groups of appends from several clients at once: nothing lost, doubled, reordered or deadlocked."""

from __future__ import annotations

import random
import threading

import psycopg
import pytest

from holdfast import Conflict, EngineFull, Store
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore

SESSIONS = 7


def test_many_writers_of_many_sessions_through_two_clients(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    stores = [connect(postgres_engine) for _ in range(2)]
    conflicts: list[str] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        for turn in range(25):
            session, name = f"s{chance.randrange(SESSIONS)}", f"{number}:{turn}"
            batch = [say(f"{name}?"), say(f"{name}!")]
            store = stores[number % 2]
            if chance.random() < 0.2:
                try:
                    store.append(session, batch, key=name, expect=chance.randrange(1, 9))
                    continue
                except Conflict:
                    conflicts.append(name)
            first = store.append(session, batch, key=name, ttl_s=chance.choice([None, 3600]))
            if chance.random() < 0.3:
                assert stores[1 - number % 2].append(session, batch, key=name) == first

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert conflicts
    _check(stores[0])
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
    assert admin.execute(deadlocks).fetchone() == (0,)


def _check(store: Store) -> None:
    everything: list[str] = []
    for number in range(SESSIONS):
        history = store.history(f"s{number}")
        assert [message.seq for message in history] == list(range(1, len(history) + 1))
        assert store.stat(f"s{number}").count == len(history)
        said = texts(history)
        assert [text[:-1] for text in said[0::2]] == [text[:-1] for text in said[1::2]], "torn"
        everything += said[0::2]
    assert sorted(everything) == sorted({f"{n}:{turn}?" for n in range(20) for turn in range(25)})


def test_a_session_that_has_given_all_its_numbers_says_so_and_keeps_what_it_has(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("first"))
    admin.execute("UPDATE holdfast.messages SET seq = 4294967294")
    admin.execute("UPDATE holdfast.sessions SET last = 4294967294, floor = 4294967293")
    for write in (store.append, store.rewrite):
        with pytest.raises(EngineFull, match="Go on in a new session"):
            write("s", [say("a"), say("b")])
    assert store.append("s", say("last")).last == 0xFFFFFFFF
    assert texts(store.history("s")) == ["first", "last"]
    assert store.history("s", limit=1).last == 0xFFFFFFFF
