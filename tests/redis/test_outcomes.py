"""Lost replies, dead engines, full memory: done, not done or unknown, never guessed, never twice."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import holdfast
from holdfast import (
    Damaged,
    EngineFull,
    EngineUnreachable,
    FormatTooNew,
    HoldfastError,
    OutcomeUnknown,
    SessionState,
)
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.faults import Proxy
from tests.contract.harness import AsyncApi, say, texts
from tests.waiting import wait_until

APIS = [holdfast.connect, AsyncApi]
StepRunner = Callable[..., Any]


@pytest.fixture
def engine(redis_engine_factory: EngineFactory) -> Any:
    return redis_engine_factory(config="aof-always")


@pytest.fixture
def proxy(engine: Any) -> Iterator[Proxy]:
    with Proxy(engine.url) as proxy:
        yield proxy


def test_plain_redis_py_sends_an_append_twice_when_its_reply_is_lost(engine: Any, proxy: Proxy):
    client = redis.Redis(host=proxy.host, port=proxy.port, password=engine.password)
    lost = proxy.swallow_reply(match=b"RPUSH")
    client.rpush("list", "once")
    lost.landed()
    assert client.lrange("list", 0, -1) == [b"once", b"once"]
    client.close()


@pytest.mark.parametrize("api", APIS)
def test_a_lost_reply_is_unknown_and_the_retry_adds_nothing(proxy: Proxy, api: StepRunner):
    with api(proxy.url) as store:
        lost = proxy.swallow_reply(match=b"EVALSHA")
        with pytest.raises(OutcomeUnknown, match="retry it with the same key") as unknown:
            store.append("s", say("once"), key="k")
        lost.landed()
        assert (unknown.value.operation, unknown.value.backend) == ("append", "redis")
        assert store.append("s", say("once"), key="k").repeated
        assert texts(store.history("s")) == ["once"]


@pytest.mark.parametrize("api", APIS)
def test_a_lost_request_is_unknown_and_the_retry_adds_it(proxy: Proxy, api: StepRunner):
    with api(proxy.url) as store:
        lost = proxy.swallow_request(match=b"EVALSHA")
        with pytest.raises(OutcomeUnknown):
            store.append("s", say("once"), key="k")
        lost.landed()
        assert not store.append("s", say("once"), key="k").repeated
        assert texts(store.history("s")) == ["once"]


@pytest.mark.parametrize("api", APIS)
def test_without_a_key_a_lost_reply_is_not_repaired_by_writing_twice(proxy: Proxy, api: StepRunner):
    with api(proxy.url) as store:
        proxy.swallow_reply(match=b"EVALSHA")
        with pytest.raises(OutcomeUnknown):
            store.append("s", say("once"))
        assert texts(store.history("s")) == ["once"]


@pytest.mark.parametrize("api", APIS)
def test_a_read_whose_reply_is_lost_is_simply_read_again(proxy: Proxy, api: StepRunner):
    with api(proxy.url) as store:
        store.append("s", say("x"))
        lost = proxy.swallow_reply(match=b"LRANGE")
        assert texts(store.history("s")) == ["x"]
        lost.landed()


@pytest.mark.parametrize("api", APIS)
def test_connections_cut_while_idle_are_noticed_before_anything_is_sent(
    proxy: Proxy, api: StepRunner
):
    with api(proxy.url) as store:
        for turn in range(5):
            store.append("s", say(str(turn)))
            proxy.cut()
        assert texts(store.history("s")) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("api", APIS)
def test_the_store_goes_on_by_itself_after_sigkill_and_restart(engine: Any, api: StepRunner):
    with api(engine.url) as store:
        acks = [store.append("s", say(str(turn)), key=str(turn)) for turn in range(20)]
        engine.kill()
        with pytest.raises(EngineUnreachable, match="nothing was written"):
            store.append("s", say("lost"))
        with pytest.raises(EngineUnreachable):
            store.history("s")
        engine.start()
        assert texts(store.history("s")) == [str(turn) for turn in range(20)]
        assert store.append("s", say("0"), key="0") == acks[0]
        assert store.append("s", say("after")).first == 21


@pytest.mark.parametrize("api", APIS)
def test_writers_that_are_interrupted_by_sigkill_lose_no_ack(engine: Any, api: StepRunner):
    """Whatever was acknowledged is there; what was definitely not written is not."""
    acked: list[str] = []
    denied: list[str] = []

    def write(name: str) -> None:
        with api(engine.url) as store:
            for turn in range(10_000):
                try:
                    store.append("s", say(f"{name}{turn}"))
                    acked.append(f"{name}{turn}")
                except EngineUnreachable:
                    denied.append(f"{name}{turn}")
                    return
                except OutcomeUnknown:
                    return

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(acked) > 100)
    engine.kill()
    for thread in threads:
        thread.join()
    engine.start()
    with holdfast.connect(engine.url) as store:
        there = texts(store.history("s"))
    assert set(acked) <= set(there)
    assert not set(denied) & set(there)
    assert len(there) == len(set(there))


def test_scripts_are_loaded_again_when_the_engine_forgot_them(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", say("a"), key="k")
        engine.call("SCRIPT", "FLUSH")
        assert store.append("s", say("b")).first == 2
        engine.call("SCRIPT", "FLUSH")
        assert texts(store.history("s")) == ["a", "b"]
        engine.call("SCRIPT", "FLUSH")
        assert store.append("s", say("a"), key="k").repeated


@pytest.mark.parametrize("api", APIS)
def test_a_full_engine_says_so_and_forgetting_still_works(
    redis_engine_factory: EngineFactory, api: StepRunner
):
    engine = redis_engine_factory(config="aof-always", settings={"maxmemory": "6mb"})
    with api(engine.url) as store:
        acked = 0
        with pytest.raises(EngineFull, match="Raise maxmemory"):
            while True:
                store.append("s", [say("x" * 50_000), say("y" * 50_000)])
                acked += 2
        assert len(store.history("s")) == acked
        assert store.stat("s").last == acked
        assert store.forget("s").messages == acked
        wait_until(lambda: takes(store, "new"))  # the engine frees the room beside its work
        assert store.sessions() == ["new"]


def takes(store: Any, session: str) -> bool:
    try:
        store.append(session, say("x"))
    except EngineFull:
        return False
    return True


@pytest.mark.parametrize("api", APIS)
def test_an_engine_made_a_replica_takes_nothing(
    engine: Any, redis_engine_factory: EngineFactory, api: StepRunner
):
    other = redis_engine_factory(config="aof-always")
    with api(engine.url) as store:
        store.append("s", say("x"))
        engine.call("CONFIG", "SET", "masterauth", other.password)
        engine.call("REPLICAOF", "127.0.0.1", str(other.port))
        with pytest.raises(HoldfastError, match="is a replica"):
            store.append("s", say("y"))


def test_a_paused_engine_is_waited_for_within_a_bound(engine: Any):
    url = f"{engine.url}?reply_timeout_s=0.5&pool_timeout_s=0.3&connections_max=1"
    outcomes: dict[str, HoldfastError] = {}

    def write(name: str) -> None:
        try:
            store.append("s", say(name))
        except HoldfastError as error:
            outcomes[name] = error

    with holdfast.connect(url) as store:
        for _ in range(2):
            store.append("s", say("before"))
        wait_until(lambda: store.append("s", say("before")).first > 0)
        engine.pause()
        begin = time.monotonic()
        threads = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - begin < 8
        engine.resume()
        assert len(outcomes) == 6
        there = wait_for_history(store)
    definite = [name for name, error in outcomes.items() if isinstance(error, EngineUnreachable)]
    unknown = [name for name, error in outcomes.items() if isinstance(error, OutcomeUnknown)]
    assert len(definite) + len(unknown) == 6
    assert definite, "one of six writes was on its way, the others cannot have been sent"
    assert unknown
    assert not set(definite) & set(there), "the error said that it was not written"


def wait_for_history(store: Any) -> list[str]:
    """A resumed engine first works off what was sent to it."""
    return texts(store.history("s"))


def test_an_exhausted_pool_is_a_clear_error_within_its_bound(proxy: Proxy):
    url = f"{proxy.url}?reply_timeout_s=3&pool_timeout_s=0.2&connections_max=1"
    with holdfast.connect(url) as store:
        store.append("s", say("x"))
        hole = proxy.black_hole()
        slow = threading.Thread(target=lambda: store.history("s"))
        slow.start()
        hole.landed()
        begin = time.monotonic()
        with pytest.raises(EngineUnreachable, match="all 1 connections were busy for 0.2 s"):
            store.history("s")
        assert time.monotonic() - begin < 3
        proxy.heal()
        slow.join()
        assert texts(store.history("s")) == ["x"]


def test_an_exhausted_pool_of_tasks_is_a_clear_error(proxy: Proxy):
    async def scenario() -> None:
        url = f"{proxy.url}?reply_timeout_s=3&pool_timeout_s=0.2&connections_max=1"
        async with await holdfast.connect_async(url) as store:
            await store.append("s", say("x"))
            hole = proxy.black_hole()
            slow = asyncio.create_task(store.history("s"))
            await asyncio.to_thread(hole.landed)
            with pytest.raises(EngineUnreachable, match="all 1 connections were busy"):
                await store.history("s")
            proxy.heal()
            assert texts(await slow) == ["x"]

    asyncio.run(scenario())


def test_a_cancelled_read_leaves_no_reply_behind_for_the_next(proxy: Proxy):
    async def scenario() -> None:
        async with await holdfast.connect_async(proxy.url) as store:
            await store.append("a", say("of a"))
            await store.append("b", say("of b"))
            held = proxy.delay(0.05, direction="to_client")
            reading = asyncio.create_task(store.history("a"))
            await asyncio.sleep(0.02)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert texts(await store.history("b")) == ["of b"]
            held.landed()

    asyncio.run(scenario())


def test_a_forked_child_has_connections_of_its_own(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", say("parent"))
        child = os.fork()
        if child == 0:
            try:
                store.append("s", say("child"))
                store.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert texts(store.history("s")) == ["parent", "child"]
        assert store.append("s", say("parent")).first == 3


def test_what_another_program_took_from_a_session_is_named(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", [say("a"), say("b"), say("c")])
        engine.call("LTRIM", "hf:{default.s}:log", "1", "-1")
        for use in (
            lambda: store.history("s"),
            lambda: store.history("s", before=3),
            lambda: store.append("s", say("d")),
        ):
            with pytest.raises(Damaged, match="2 of its 3 messages"):
                use()
        store.forget("s")
        assert store.append("s", say("d")).first == 4


@pytest.mark.parametrize("version", ["6.2", "7"])
@pytest.mark.parametrize(
    "key",
    ["hf:{default.s}:head", "hf:{default.s}:log", "hf:{default.s}:keys", "hf:{default}:names"],
)
def test_a_key_of_another_kind_is_damage_and_nothing_is_half_written(
    redis_engine_factory: EngineFactory, version: str, key: str
):
    engine = redis_engine_factory(config="aof-always", version=version)
    engine.call("SET", key, "something else")
    with holdfast.connect(engine.url) as store:
        with pytest.raises(Damaged, match="another program"):
            store.append("s", say("x"), key="k")
    assert engine.call("GET", key) == "something else"
    assert engine.call("KEYS", "*") == [key]


def test_a_layout_of_a_later_release_is_left_alone(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", say("x"))
        engine.call("HSET", "hf:{default.s}:head", "v", "2")
        for use in (
            lambda: store.history("s"),
            lambda: store.append("s", say("x")),
            lambda: store.forget("s"),
            lambda: store.stat("s"),
        ):
            with pytest.raises(FormatTooNew, match="Upgrade"):
                use()
    assert engine.call("LLEN", "hf:{default.s}:log") == 1


def test_the_engine_frees_an_expired_log_and_keeps_what_must_not_be_forgotten(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", [say("a"), say("b")], key="k", ttl_s=0.05)
        wait_until(lambda: engine.call("EXISTS", "hf:{default.s}:log") == 0)
        for key in ("head", "keys"):  # for the 90 days that a store keeps them
            assert 89 < engine.call("PTTL", f"hf:{{default.s}}:{key}") / 86_400_000 <= 90
        wait_until(lambda: store.stat("s").state is SessionState.EXPIRED)
        assert store.append("s", say("a"), key="k").repeated
        assert store.append("s", say("c"), ttl_s=None).first == 3
        for key in ("log", "head", "keys"):
            assert engine.call("PTTL", f"hf:{{default.s}}:{key}") == -1


def test_a_time_to_live_that_was_taken_away_is_taken_from_the_log_too(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", say("a"), ttl_s=3600)
        assert engine.call("PTTL", "hf:{default.s}:log") > 0
        store.append("s", say("b"), ttl_s=None)
        assert engine.call("PTTL", "hf:{default.s}:log") == -1


def test_a_clock_that_is_set_back_brings_nothing_back(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", [say("a"), say("b")], ttl_s=3600)
        engine.call("DEL", "hf:{default.s}:log")  # as the engine did at the later time
        assert store.history("s").state is SessionState.EXPIRED
        assert store.stat("s").state is SessionState.EXPIRED
        assert store.append("s", say("c"), expect=0).first == 3
