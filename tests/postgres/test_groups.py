"""Groups of appends from several clients at once: nothing lost, doubled, reordered or deadlocked."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
import pytest

from holdfast import Conflict, EngineFull, Store, limits
from holdfast.backends.postgres.lanes import GROUP_BYTES_MAX, Lanes, Pending
from holdfast.commands import Append
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


def pending(session: str, size: int = 1) -> Pending:
    return Pending(Append(session.encode(), [b"x" * size]))


def queued(*waiting: Pending) -> tuple[Lanes, list[Any]]:
    """Lanes that were full while these came; what then went, group by group."""
    lanes = Lanes()
    blockers = [pending(f"blocker {n}") for n in range(3)]
    assert all(lanes.enter(one) for one in blockers)
    assert not any(lanes.enter(one) for one in waiting)
    groups: list[Any] = []
    for blocker in blockers:
        lanes.leave([blocker])
    while group := next((one.group for one in waiting if one.group), None):
        groups.append([one.command.session.decode() for one in group])
        group[0].group = ()
        lanes.leave(group)
    return lanes, groups


def test_those_who_wait_go_together_sorted_by_session():
    _, groups = queued(*(pending(name) for name in "cabca"))
    assert groups == [["a", "a", "b", "c", "c"]]


def test_a_group_is_bounded_by_bytes_and_by_count():
    _, groups = queued(*(pending(f"s{n}", GROUP_BYTES_MAX // 2) for n in range(5)))
    assert [len(group) for group in groups] == [2, 2, 1]
    _, groups = queued(pending("large", limits.BATCH_BYTES_MAX), pending("small"))
    assert groups == [["large"], ["small"]]
    _, groups = queued(*(pending(f"s{n:03}") for n in range(300)))
    assert [len(group) for group in groups] == [256, 44]


def test_one_that_was_held_goes_alone_the_next_time():
    lanes = Lanes()
    group = [pending("a"), pending("b"), pending("b")]
    blockers = [pending(f"blocker {n}") for n in range(3)]
    assert all(lanes.enter(one) for one in blockers)
    assert not any(lanes.enter(one) for one in group)
    lanes.leave([blockers[0]])
    assert group[0].group == group
    group[0].outcome, group[1].again, group[2].again = "done", True, True
    waits = pending("c")
    assert not lanes.enter(waits)
    assert lanes.leave(group) is False
    assert group[1].group == group[1:], "together with its own session, and no other"
    lanes.leave([blockers[1]])
    assert waits.group == [waits]


@pytest.mark.parametrize("which", [0, 1])
def test_an_append_can_be_taken_back_only_while_it_waits(which: int):
    lanes = Lanes()
    one, two = pending("a"), pending("a")
    assert lanes.enter(one)
    assert not lanes.enter(two)
    assert lanes.withdraw((one, two)[which]) is bool(which)


def test_a_caller_that_went_away_leaves_nobody_stuck():
    """Ctrl-C while it waits: first in the queue, then at the head of a group, then in flight."""
    lanes = Lanes()
    running, gone, after = pending("a"), pending("a"), pending("a")
    assert lanes.enter(running)
    assert not lanes.enter(gone)
    assert not lanes.enter(after)
    lanes.leave([running])
    assert gone.group == [gone, after]
    lanes.abandon(gone)
    assert after.group == [after], "the lead went on to the next"
    late = pending("a")
    assert not lanes.enter(late)
    lanes.abandon(late)
    after.again = after.abandoned = True
    assert lanes.leave([after]) is False
    assert lanes.enter(pending("a")), "the lane is free again"


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
