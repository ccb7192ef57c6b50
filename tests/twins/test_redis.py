"""Nights three to five: each naive store loses on a real Redis, and says nothing; ours does not."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Durability, OutcomeUnknown, Refused, SessionState
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.faults import Proxy
from tests.contract.harness import say, texts
from tests.twins.redis_stores import (
    CompressingStore,
    DocumentStore,
    FiveMinuteStore,
    ListStore,
    OneByOneStore,
    TtlPerMessageStore,
)
from tests.waiting import wait_until

QUESTION, ANSWER = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}


@pytest.fixture
def engine(redis_engine_factory: EngineFactory) -> Any:
    return redis_engine_factory(config="aof-always")


@pytest.fixture
def open_twin(engine: Any) -> Iterator[Callable[..., Any]]:
    opened: list[ListStore] = []

    def start(kind: type[ListStore], url: str = engine.url) -> ListStore:
        opened.append(kind(url))
        return opened[-1]

    yield start
    for twin in opened:
        twin.close()


def at_once(write: Callable[[int], object], count: int) -> None:
    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_read_add_and_write_back_loses_messages_of_others(
    engine: Any, open_twin: Callable[..., Any]
):
    meeting = threading.Barrier(4)
    twin = open_twin(DocumentStore)
    at_once(lambda n: twin.append("s", [{"content": str(n)}], pause=meeting.wait), 4)
    assert len(twin.history("s")) == 1, "all four were acknowledged, and three are gone"

    with holdfast.connect(engine.url) as store:
        at_once(lambda n: store.append("s", say(str(n))), 4)
        assert sorted(texts(store.history("s"))) == ["0", "1", "2", "3"]


def test_read_and_write_back_of_ours_is_a_conflict_not_a_loss(engine: Any):
    with holdfast.connect(engine.url) as store:
        store.append("s", say("a"))
        read = store.history("s")
        store.append("s", say("b"))
        with pytest.raises(holdfast.Conflict):
            store.rewrite("s", [*read, say("c")], expect=read.last)
        assert texts(store.history("s")) == ["a", "b"]


def test_two_writes_for_one_turn_leave_half_of_it_after_a_crash(
    engine: Any, open_twin: Callable[..., Any]
):
    twin = open_twin(OneByOneStore)
    with pytest.raises(ZeroDivisionError):
        twin.append("s", [QUESTION, ANSWER], pause=lambda: 1 // 0)  # the process ends here
    assert twin.history("s") == [QUESTION], "a question that was never answered"

    with Proxy(engine.url) as proxy, holdfast.connect(proxy.url) as store:
        lost = proxy.swallow_request(match=b"EVALSHA")
        with pytest.raises(OutcomeUnknown):
            store.append("s", [say("?"), say("!")], key="turn")
        lost.landed()
        assert texts(store.history("s")) == []
        store.append("s", [say("?"), say("!")], key="turn")
        assert texts(store.history("s")) == ["?", "!"]


def test_the_driver_s_own_retry_writes_the_turn_twice(engine: Any, open_twin: Callable[..., Any]):
    with Proxy(engine.url) as proxy:
        twin = open_twin(ListStore, proxy.url)
        lost = proxy.swallow_reply(match=b"RPUSH")
        twin.append("s", [QUESTION])
        lost.landed()
        assert twin.history("s") == [QUESTION, QUESTION]

        with holdfast.connect(proxy.url) as store:
            lost = proxy.swallow_reply(match=b"EVALSHA")
            with pytest.raises(OutcomeUnknown):
                store.append("s", say("?"), key="turn")
            lost.landed()
            assert store.append("s", say("?"), key="turn").repeated
            assert texts(store.history("s")) == ["?"]


def test_one_changed_line_makes_every_session_die_in_five_minutes(
    engine: Any, open_twin: Callable[..., Any]
):
    twin = open_twin(FiveMinuteStore)
    twin.append("s", [QUESTION])
    assert 290 < engine.call("TTL", "chat:s") <= 300, "nobody asked for that"
    twin.ttl_s = 0.05  # the same line, without the wait
    twin.append("s", [ANSWER])
    wait_until(lambda: twin.history("s") == [])

    with holdfast.connect(engine.url) as store:
        store.append("s", say("x"))
        assert store.stat("s").expires_at is None
        for key in engine.call("KEYS", "hf:*"):
            assert engine.call("TTL", key) == -1, key


def test_a_time_to_live_for_each_message_forgets_the_beginning_first(
    engine: Any, open_twin: Callable[..., Any]
):
    twin = open_twin(TtlPerMessageStore)
    begin = time.monotonic()
    twin.append("s", [{"content": "my name is Xiao Li"}])
    wait_until(lambda: time.monotonic() - begin > 0.3)
    twin.append("s", [{"content": "what is my name?"}])
    sizes = set()

    def all_gone() -> bool:
        sizes.add(len(twin.history("s")))
        return 0 in sizes

    wait_until(all_gone)
    assert 1 in sizes, "for a while there was a question about something forgotten"

    sizes.clear()
    with holdfast.connect(engine.url) as store:
        store.append("s", say("my name is Xiao Li"), ttl_s=0.3)
        store.append("s", say("what is my name?"))

        def expired() -> bool:
            sizes.add(len(store.history("s")))
            return store.history("s").state is SessionState.EXPIRED

        wait_until(expired)
    assert sizes <= {0, 2}


def test_a_new_serializer_cannot_read_yesterday_s_records(
    engine: Any, open_twin: Callable[..., Any]
):
    yesterday, today = open_twin(ListStore), open_twin(CompressingStore)
    yesterday.append("s", [QUESTION])
    today.append("s", [ANSWER])
    with pytest.raises(zlib.error):
        today.history("s")  # the old record hides the new one as well

    with holdfast.connect(engine.url) as store:
        store.append("s", [say("a"), say("b")])
        engine.call("LSET", "hf:{default.s}:log", "0", '{"role": "user", "content": "long ago"}')
        engine.call("LSET", "hf:{default.s}:log", "1", '{"v":9,"crc":"00000000","msg":{}}')
        history = store.history("s")
        assert texts(history) == ["long ago"]
        assert "Upgrade" in history.damaged[0].reason


@pytest.mark.parametrize("config", ["rdb-only", "no-persistence"])
def test_without_an_append_only_file_a_crash_takes_everything(
    redis_engine_factory: EngineFactory, open_twin: Callable[..., Any], config: str
):
    engine = redis_engine_factory(config=config)
    twin = open_twin(ListStore, engine.url)
    for _ in range(50):
        twin.append("s", [QUESTION, ANSWER])
    assert len(twin.history("s", limit=1000)) == 100
    engine.kill()
    engine.start()
    assert twin.history("s", limit=1000) == [], "100 messages were acknowledged"

    with pytest.raises(Refused, match="appendonly yes"):
        holdfast.connect(engine.url)
    with holdfast.connect(engine.url, require=Durability.MEMORY) as store:
        assert store.append("s", say("x")).durability is Durability.MEMORY


def test_with_one_that_is_synced_ours_survives_the_same_crash(engine: Any):
    with holdfast.connect(engine.url) as store:
        for turn in range(50):
            store.append("s", [say(f"{turn}?"), say(f"{turn}!")])
        engine.kill()
        engine.start()
        assert len(store.history("s")) == 100
