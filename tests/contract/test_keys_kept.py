"""`keys_kept_s`: what is kept of what is gone is bounded, and protects until then."""

from __future__ import annotations

import inspect
import itertools
import json
import time
from typing import Any

import pytest
import redis

import holdfast
from holdfast import Conflict, Message, Retention, SessionState, Store, UsageError
from tests.contract.clocks import ServerClock, SqliteClock
from tests.contract.harness import say, texts

KEPT_S = 1000.0
Clock = SqliteClock | ServerClock


@pytest.fixture(autouse=True)
def every_write_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backends.sqlite.writer.SWEEP_INTERVAL_S", 0.0)
    monkeypatch.setattr("holdfast.backends.postgres.command_steps.SWEEP_INTERVAL_S", 0.0)


def opened(clocked: Clock, **more: Any) -> Store:
    more = {"keys_kept_s": KEPT_S, "namespace": f"kept {time.time_ns()}", **more}
    return holdfast.connect(clocked.url, background_indexing=False, **more)


def keys_of(store: Store) -> dict[str, int]:
    """How many keys are stored of each session, tombstones too."""
    lines = [json.loads(line) for line in store.export()]
    return {line["session"]: len(line["keys"]) for line in lines if "keys" in line}


def test_keys_of_messages_that_are_gone_are_kept_for_their_time_and_do_not_pile_up(clocked: Clock):
    numbers = itertools.count()
    with opened(clocked, retention=Retention(last=4)) as store:

        def add(count: int) -> list[str]:
            keys = [f"k{number}" for number in itertools.islice(numbers, count)]
            for key in keys:
                assert not store.append("s", say(key), key=key).repeated
            return keys

        store.append("whole", say("stays"), key="of a message that stays", retention=None)
        for _ in range(5):
            keys = add(40)
            clocked.move(KEPT_S * 0.4)
            assert all(store.append("s", say("again"), key=key).repeated for key in keys)
            clocked.move(KEPT_S * 0.7)
        newest = add(40)
        assert store.append("whole", say("again"), key="of a message that stays").repeated
        assert all(store.append("s", say("again"), key=key).repeated for key in newest)
        found = keys_of(store)
    assert found["whole"] == 1
    assert 40 <= found["s"] < 130  # of 240; each that is added looks at eight


@pytest.mark.parametrize("ended", ["forgotten", "expired"])
def test_a_tombstone_is_kept_for_its_time_then_the_name_is_as_good_as_new(
    clocked: Clock, ended: str
):
    with opened(clocked) as store:
        ttl_s = 10.0 if ended == "expired" else None
        store.append("s", [say("1"), say("2")], key="k", ttl_s=ttl_s)
        store.append("revived", say("1"), ttl_s=ttl_s)
        backup = list(store.export(prefix="s"))
        clocked.move(20)
        if ended == "forgotten":
            store.forget("s")
            store.forget("revived")
        clocked.move(KEPT_S * 0.5)
        assert store.append("revived", say("2"), key="later", ttl_s=None).first == 2
        clocked.move(KEPT_S * 0.4)
        assert store.append("revived", say("3")).first == 3  # it frees what may go
        assert store.stat("s").state == SessionState(ended)
        assert store.append("s", say("late"), key="k").repeated
        if ended == "forgotten":
            with pytest.raises(Conflict):
                store.load(backup)
        clocked.move(KEPT_S * (0.2 if ended == "forgotten" else 1.2))  # from when it was noticed
        for number in range(4, 8):
            assert store.append("revived", say(str(number))).first == number
        assert store.append("revived", say("again"), key="later").repeated
        assert texts(store.history("revived")) == [str(number) for number in range(2, 8)]
        assert store.stat("s").state is SessionState.NEVER
        assert (store.sessions(), [*keys_of(store)]) == (["revived"], ["revived"])
        assert store.append("s", say("new"), key="k").first == 1
        assert store.sessions() == ["revived", "s"]


def test_without_a_bound_nothing_goes(clocked: Clock):
    with opened(clocked, keys_kept_s=None) as store:
        store.append("s", [say("1"), say("2")], key="k")
        store.forget("s")
        clocked.move(10 * 365 * 86400)
        for _ in range(3):
            store.append("other", say("x"))
        assert store.append("s", say("late"), key="k").repeated
        assert store.append("s", say("3")).first == 3


def test_ninety_days_unless_told_otherwise(clocked: Clock):
    with opened(clocked, keys_kept_s=90 * 86400) as told, holdfast.connect(clocked.url) as store:
        assert inspect.signature(holdfast.connect).parameters["keys_kept_s"].default == 90 * 86400
        for one in (told, store):
            one.append("gone", Message("user", "x"), key="k")
            one.forget("gone")
        clocked.move(89 * 86400)
        for one in (told, store):
            one.append("other", say("y"))
            assert one.append("gone", say("late"), key="k").repeated
        for wrong in (0, -1, True, "90d"):
            with pytest.raises(UsageError, match="keys_kept_s"):
                opened(clocked, keys_kept_s=wrong)


def sweep(store: Store, count: int = 6) -> None:
    """Writes with keys: each frees some of what may go."""
    for _ in range(count):
        store.append("other", say("x"), key=f"w{time.time_ns()}")


def test_a_namespace_keeps_its_own_for_as_long_as_its_own_setting_says(clocked: Clock):
    with opened(clocked, keys_kept_s=None) as store, opened(clocked, keys_kept_s=1) as other:
        store.append("s", [say("1"), say("2")], key="k")
        store.append("cut", say("1"), key="k")
        store.rewrite("cut", say("2"))
        backup = list(store.export(prefix="s"))
        store.forget("s")
        other.append("cut", say("1"), key="k")
        other.rewrite("cut", say("2"))
        sweep(other)
        clocked.move(10)
        sweep(other, 10)
        if clocked.url.startswith("postgres"):  # only there any write looks at keys of any session
            assert keys_of(other)["cut"] == 0
        assert store.stat("s").state is SessionState.FORGOTTEN
        assert store.append("s", say("late"), key="k").repeated
        assert store.append("cut", say("late"), key="k").repeated
        with pytest.raises(Conflict):
            store.load(backup)


@pytest.mark.parametrize("now", [False, True])
def test_what_was_forgotten_stays_for_its_time_however_old_it_was(clocked: Clock, now: bool):
    """Neither the age of a key nor an expiry before the forget shortens it."""
    with opened(clocked) as store:
        store.append("s", [say("1"), say("2")], key="k")
        store.append("old", say("1"), key="k")
        backup = list(store.export(prefix="s"))
        store.append("s", say("3"), ttl_s=1)
        clocked.move(5)
        assert store.stat("s").state is SessionState.EXPIRED
        sweep(store)
        clocked.move(KEPT_S * 0.9)
        store.forget("s", now=now)
        clocked.move(KEPT_S * 0.3)
        store.forget("old", now=now)
        sweep(store)
        assert store.stat("s").state is SessionState.FORGOTTEN
        with pytest.raises(Conflict):
            store.load(backup)
        for name in ("s", "old"):
            assert store.append(name, say("late"), key="k").repeated


@pytest.mark.parametrize("first", ["load", "forget"])
def test_of_two_tombstones_that_become_one_the_later_time_counts(clocked: Clock, first: str):
    with opened(clocked) as source, opened(clocked) as store:
        source.append("s", [say("1"), say("2"), say("3")], key="theirs")
        source.forget("s", now=True)
        moved = list(source.export())
        store.append("s", say("mine"), key="own")
        backup = list(store.export(prefix="s"))
        store.load(moved) if first == "load" else store.forget("s")
        clocked.move(KEPT_S * 0.9)
        if first == "forget":
            store.load(moved)
        store.forget("s", now=True)
        clocked.move(KEPT_S * 0.3)
        sweep(store)
        assert (store.stat("s").state, store.stat("s").last) == (SessionState.FORGOTTEN, 3)
        assert store.append("s", say("x"), key="theirs").repeated
        assert store.append("s", say("x"), key="own").repeated
        with pytest.raises(Conflict):
            store.load(backup)


@pytest.mark.parametrize("clocked", ["redis"], indirect=True)
def test_no_names_of_what_is_no_more_pile_up(clocked: ServerClock):
    """In Redis they are in sets of their own: of sessions, memories and digests, listed or not."""
    with opened(clocked, namespace="piled") as store, redis.Redis.from_url(clocked.url) as plain:

        def named(text: bytes) -> list[bytes]:
            sets = plain.zrange("hf:{piled}:names", 0, -1) + plain.zrange("hf:{piled}:gone", 0, -1)
            return [name for name in [*sets, *plain.hkeys("hf:{piled}:going")] if text in name]

        store.append("lives", say("x"))
        store.remember("lives", "a memory")
        for turn in range(60):
            name = f"user-{turn}"
            store.append(name, say("x"))
            store.remember(name, "a memory")
            if turn == 0:
                store.forget(name)
                clocked.move(KEPT_S * 2)
                assert len(named(b"user-0")) == 2
                assert store.forget(name, now=True).messages == 0
                assert named(b"user-0") == []  # nothing but its name was left
                continue
            store.forget(name, now=turn % 2 == 0)
            if turn % 2:
                assert store.sessions() == ["lives"]
            clocked.move(KEPT_S * 0.5)
        assert len(named(b"")) < 40  # of 177; two turns are not over yet
        assert len(named(b"lives")) == 2
        old = list(store.export())
        clocked.move(KEPT_S * 2)
        for _ in range(1000):  # each looks at a few, any few
            assert store.sessions() == ["lives"]
            if len(named(b"")) == 2:
                break
        assert sorted(named(b"")) == [b"lives", b"\xffmlives"]
        assert len(old) > len(list(store.export()))
