"""Acks at REPLICA on several engines: confirmed for each write, and there after any failover."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Durability, Message
from holdfast.backends.redis import pool
from holdfast.backends.redis.keys import SLOTS, Keys, slot_of
from holdfast.errors import (
    EngineFull,
    EngineUnreachable,
    FaultNotProven,
    HoldfastError,
    OutcomeUnknown,
    Refused,
)
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.proof import await_true
from tests.contract.harness import AsyncApi
from tests.redis.failovers import lose_primaries

FAILOVERS = 5
SHORT = "reply_timeout_s=1"


def settled(call: Callable[[], Any]) -> Any:
    """The answer of a call, once there is a primary that its replicas follow: it is refused till then."""
    answers = []

    def is_answered() -> bool:
        with contextlib.suppress(HoldfastError):
            answers.append(call())
        return bool(answers)

    assert await_true(is_answered, 60, 0.02)
    return answers[0]


def shown(store: Any, session: str = "s") -> list[Any]:
    return [one.content for one in settled(lambda: store.history(session))]


@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_no_ack_is_lost_in_five_failovers(
    redis_engine_factory: EngineFactory, topology: str
) -> None:
    engine = redis_engine_factory(topology=topology)
    load, wrong, seen = lose_primaries(engine, FAILOVERS)
    assert wrong == []
    assert load.levels == {Durability.REPLICA}
    assert all(one.facts["before"] != one.facts["after"] for one in seen)


@pytest.fixture
def patient(redis_engine_factory: EngineFactory, request: pytest.FixtureRequest) -> Any:
    """Sentinels that call nobody down for a minute, so that what is held stays held."""
    kind = getattr(request, "param", "redis")
    engine = redis_engine_factory.func(kind, topology="sentinel")  # type: ignore[attr-defined]
    for sentinel in engine.sentinels:
        sentinel.call("SENTINEL", "SET", "holdfast", "down-after-milliseconds", "60000")
    return engine


def test_each_replica_that_may_become_primary_confirms_a_write(patient: Any) -> None:
    """Sentinels choose by offsets that are up to ten seconds old: it may be the one that lacks it."""
    held = next(one for one in patient.members if not one.is_primary())
    with holdfast.connect(f"{patient.url}&{SHORT}", require=Durability.REPLICA) as store:
        first = Message("user", "first")
        assert (
            settled(lambda: store.append("s", first, key="first")).durability is Durability.REPLICA
        )
        held.pause()
        try:
            with pytest.raises(OutcomeUnknown, match="1 of 2 replicas"):
                store.append("s", Message("user", "second"), key="second")
        finally:
            held.resume()
        second = Message("user", "second")
        assert settled(lambda: store.append("s", second, key="second")).repeated


def test_where_less_is_required_the_ack_says_disk(patient: Any) -> None:
    with pytest.warns(holdfast.StorageWarning, match="REPLICA"):
        store = holdfast.connect(patient.url, require=Durability.DISK)
    with store:
        assert store.append("s", Message("user", "hello")).durability is Durability.DISK


@pytest.mark.parametrize("patient", ["redis", "valkey"], indirect=True)
def test_a_read_shows_nothing_that_a_failover_could_take_back(patient: Any) -> None:
    replicas = [one for one in patient.members if not one.is_primary()]
    url = f"{patient.url}&{SHORT}"
    with pytest.warns(holdfast.StorageWarning):
        careless = holdfast.connect(url, require=Durability.DISK)
    with careless, holdfast.connect(url, require=Durability.REPLICA) as store:
        settled(lambda: store.append("s", Message("user", "everywhere"), key="everywhere"))
        for one in replicas:
            one.pause()
        try:
            careless.append("s", Message("user", "here only"))
            with pytest.raises(EngineUnreachable, match="0 of 2 replicas"):
                store.history("s")
        finally:
            for one in replicas:
                one.resume()
        assert shown(store) == ["everywhere", "here only"]


def test_a_read_adds_to_no_file_and_needs_no_memory(patient: Any) -> None:
    """Replicas confirm something that is sent for it, and nobody has to keep that."""
    with holdfast.connect(patient.url, require=Durability.REPLICA) as store:
        settled(lambda: store.append("s", Message("user", "there"), key="k"))
        before = [one.info("persistence")["aof_current_size"] for one in patient.members]
        assert [shown(store) for _ in range(5)] == [["there"]] * 5
        after = [one.info("persistence")["aof_current_size"] for one in patient.members]
        assert after == before
        patient.primary().call("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(EngineFull):
            store.append("s", Message("user", "too much"))
        assert [one.content for one in store.history("s")] == ["there"]


def test_the_newest_word_of_the_sentinels_counts_though_one_is_cut_off(
    redis_engine_factory: EngineFactory,
) -> None:
    engine = redis_engine_factory(topology="sentinel", partitions=True)
    old = engine.primary()
    with holdfast.connect(f"{engine.url}&{SHORT}", require=Durability.REPLICA) as store:
        settled(lambda: store.append("s", Message("user", "before"), key="before"))
        engine.partition(old)  # its sentinel, the first of the URL, goes on naming it
        settled(lambda: store.append("s", Message("user", "during"), key="during"))
        assert old.is_primary()
        size = old.call("LLEN", "hf:{default.s}:log")
        assert shown(store) == ["before", "during"]
        engine.heal()
        engine.rejoin()
        assert shown(store) == ["before", "during"]
    assert size <= 2


def test_an_idle_primary_that_is_cut_off_is_not_read(
    redis_engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replicas have confirmed all that it has: nobody writes to it, and no ping is due."""
    quiet = {"repl-ping-replica-period": "600", "repl-timeout": "1200"}
    engine = redis_engine_factory(topology="sentinel", partitions=True, settings=quiet)
    for sentinel in engine.sentinels:
        sentinel.call("SENTINEL", "DEBUG", "publish-period", "600000")
    old = engine.primary()
    url = f"{engine.url}&{SHORT}"
    with holdfast.connect(url, require=Durability.REPLICA) as reader:
        settled(lambda: reader.append("s", Message("user", "before"), key="before"))
        assert shown(reader) == ["before"]
        assert await_true(lambda: _is_confirmed(old), 60, 0.02)
        engine.partition(old)
        assert await_true(lambda: _is_another(engine, old), 60, 0.02)
        with holdfast.connect(url, require=Durability.REPLICA) as writer:
            settled(lambda: writer.append("s", Message("user", "after"), key="after"))
        assert old.is_primary()
        monkeypatch.setattr(pool, "RECHECK_S", 3600.0)  # as if sentinels had been asked just before
        with contextlib.suppress(EngineUnreachable):
            assert [one.content for one in reader.history("s")] == ["before", "after"]


def test_a_read_answers_after_the_slot_of_what_it_writes_has_moved(
    redis_engine_factory: EngineFactory,
) -> None:
    """Its node has one key less to write for a read, and sessions of other slots are still there."""
    engine = redis_engine_factory.func("valkey", topology="cluster")  # type: ignore[attr-defined]
    source, *others = (engine.owner(slot) for slot in range(0, SLOTS, SLOTS // 3 + 1))
    name = _name_at(engine, source)
    with holdfast.connect(engine.url, require=Durability.REPLICA) as store:
        store.append(name, Message("user", "there"))
        assert len(store.history(name)) == 1
        probes = (slot_of(b"hf:{probe%d}:probe" % number) for number in range(SLOTS))
        engine._move(
            next(slot for slot in probes if engine.owner(slot) is source), source, others[0]
        )
        assert [one.content for one in store.history(name)] == ["there"]


def _name_at(engine: Any, member: Any) -> str:
    """A session that this member of a cluster has."""
    names = (f"s{number}" for number in range(1000))
    key = Keys(b"default").session
    return next(one for one in names if engine.owner(slot_of(key(one.encode())[0])) is member)


def _is_confirmed(primary: Any) -> bool:
    """Whether its replicas have all that it has, by what they told it last."""
    said = primary.replication()
    last = [dict(pair.split("=") for pair in said[f"slave{n}"].split(",")) for n in range(2)]
    return {one["offset"] for one in last} == {said["master_repl_offset"]}


def test_what_a_held_primary_is_sent_is_not_acknowledged_when_it_wakes_up(
    redis_engine_factory: EngineFactory,
) -> None:
    """It carries out what was sent before it knows that another has taken its place."""
    engine = redis_engine_factory(topology="sentinel")
    old = engine.primary()
    url = f"{engine.url}&reply_timeout_s=5"  # it waits for replicas nearly as long when it wakes up
    with (
        holdfast.connect(url, require=Durability.REPLICA) as store,
        holdfast.connect(url, require=Durability.REPLICA) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        for session in ("s", "without a key"):
            before = Message("user", "before")
            settled(lambda: store.append(session, before, key="before"))  # noqa: B023 - called at once
        meanwhile = Message("user", "meanwhile")
        settled(lambda: other.history("s"))  # its connection is open
        old.pause()
        begun = pool.submit(store.append, "s", meanwhile, key="k")
        keyless = pool.submit(other.append, "without a key", meanwhile)
        try:
            assert await_true(lambda: _is_another(engine, old), 60, 0.02)
        finally:
            old.resume()
        # With a key it is repeated by the store as long as a reply may take, then by the caller.
        failed = begun.exception(60)
        assert failed is None or isinstance(failed, OutcomeUnknown)
        assert isinstance(keyless.exception(60), OutcomeUnknown)
        settled(lambda: store.append("s", meanwhile, key="k"))
        assert engine.primary() is not old
        assert shown(store) == ["before", "meanwhile"]
        assert shown(store, "without a key") == ["before"]
        engine.rejoin()
        assert shown(store) == ["before", "meanwhile"]
        assert shown(store, "without a key") == ["before"]


def _is_another(engine: Any, old: Any) -> bool:
    try:
        return engine.primary() is not old
    except FaultNotProven:
        return False


@pytest.mark.parametrize("api", [holdfast.connect, AsyncApi])
def test_what_a_dead_node_has_is_named_and_the_rest_is_there(
    redis_engine_factory: EngineFactory, api: Any
) -> None:
    """No replica takes its place, and the others go on without it."""
    engine = redis_engine_factory(
        config="cluster", settings={"cluster-require-full-coverage": "no"}
    )
    keys = Keys(b"default")
    index = _node_of(engine, keys.index)
    names = [f"s{number}" for number in range(30)]
    with api(engine.url) as store:
        for name in names:
            store.append(name, Message("user", name))
        dead = next(node for node in engine.nodes if node is not index)
        lost = [n for n in names if _node_of(engine, keys.session(n.encode())[0]) is dead]
        assert 0 < len(lost) < len(names)
        dead.kill()
        assert await_true(lambda: _lists(store), 60, 0.05)
        assert sorted(store.sessions()) == sorted(names)
        lines: list[str] = []
        with pytest.raises(EngineUnreachable, match=f"{len(lost)} session") as left_out:
            for line in store.export():
                lines.append(line)  # noqa: PERF402 - those before the error count
        assert lost[0] in str(left_out.value)
    if api is holdfast.connect:  # the other one collects them all first
        there = [json.loads(line)["session"] for line in lines if '"session"' in line]
        assert sorted(there) == sorted(set(names) - set(lost))
        assert json.loads(lines[-1])["end"]


def _node_of(engine: Any, key: bytes) -> Any:
    slot = slot_of(key)
    for first, last, (_, port, *_), *_ in engine.nodes[0].call("CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(node for node in engine.nodes if node.port == port)
    raise AssertionError(slot)


def _lists(store: Any) -> bool:
    try:
        return bool(store.sessions())
    except HoldfastError:
        return False


def test_a_primary_that_a_replica_has_left_is_not_read(patient: Any) -> None:
    """The one that left may become the primary, and what is shown here would be gone."""
    primary = patient.primary()
    held = next(one for one in patient.members if one is not primary)
    url = f"{patient.url}&{SHORT}"
    with pytest.warns(holdfast.StorageWarning):
        careless = holdfast.connect(url, require=Durability.DISK)
    with careless, holdfast.connect(url, require=Durability.REPLICA) as store:
        settled(lambda: store.append("s", Message("user", "everywhere"), key="everywhere"))
        held.pause()
        try:
            primary.call("CLIENT", "KILL", "TYPE", "replica")
            assert await_true(lambda: primary.replication()["connected_slaves"] == "1", 30)
            careless.append("s", Message("user", "not everywhere"))
            assert await_true(lambda: "is not asked" in _refusal(store), 30)
        finally:
            held.resume()
        assert await_true(lambda: _shown(store) == ["everywhere", "not everywhere"], 30)


def _refusal(store: Any) -> str:
    with pytest.raises(EngineUnreachable) as refusal:
        store.history("s")
    return str(refusal.value)


def _shown(store: Any) -> list[Any]:
    try:
        return [one.content for one in store.history("s")]
    except EngineUnreachable:
        return []


def test_a_replica_that_has_come_back_is_seen_at_once(
    patient: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover replicas come one by one: what was too little is looked at again soon."""
    primary = patient.primary()
    held = next(one for one in patient.members if one is not primary)
    with holdfast.connect(f"{patient.url}&{SHORT}", require=Durability.REPLICA) as store:
        settled(lambda: store.append("s", Message("user", "first"), key="first"))
        held.pause()
        try:
            primary.call("CLIENT", "KILL", "TYPE", "replica")
            assert await_true(lambda: primary.replication()["connected_slaves"] == "1", 30)
            monkeypatch.setattr(pool, "RECHECK_S", 0.0)
            with pytest.raises(Refused, match="1 of the 2 replicas"):
                store.append("s", Message("user", "second"), key="second")
        finally:
            held.resume()
        monkeypatch.setattr(pool, "RECHECK_S", 3600.0)
        second = Message("user", "second")
        assert settled(lambda: store.append("s", second, key="second"))
        assert shown(store) == ["first", "second"]
