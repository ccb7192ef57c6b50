"""The second night: each naive store loses, reorders or goes stale on a real server; ours does not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Message, Store
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.twins.postgres_stores import (
    AppClockStore,
    ContextBuilder,
    OverwriteStore,
    ReplicaReadingStore,
    RowStore,
    SerialCursorStore,
    Turn,
)
from tests.waiting import wait_until


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def ours(postgres_engine: PostgresEngine) -> Iterator[Store]:
    with holdfast.connect(postgres_engine.url) as store:
        yield store


def turn(content: str) -> Turn:
    return {"role": "user", "content": content}


def contents(turns: list[Turn]) -> list[Any]:
    return [message["content"] for message in turns]


def behind() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=5)


def open_twin(opened: contextlib.ExitStack, kind: Any, *arguments: Any) -> Any:
    return opened.enter_context(contextlib.closing(kind(*arguments)))


def test_an_application_s_clock_reorders_and_drops_the_newest(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack, ours: Store
):
    one = open_twin(opened, AppClockStore, postgres_engine.url)
    two = open_twin(opened, AppClockStore, postgres_engine.url, behind)
    one.append("s", [turn("My name is Xiao Li")])
    two.append("s", [turn("Call me Lily instead")])  # after the first was acknowledged
    assert contents(one.history("s")) == ["Call me Lily instead", "My name is Xiao Li"]
    assert contents(one.history("s", limit=1)) == ["My name is Xiao Li"], "the newest is gone"

    ours.append("s", Message("user", "My name is Xiao Li"))
    ours.append("s", Message("user", "Call me Lily instead", created_at=behind()))
    assert texts(ours.history("s")) == ["My name is Xiao Li", "Call me Lily instead"]
    assert texts(ours.history("s", limit=1)) == ["Call me Lily instead"]


def test_one_clock_is_not_enough_when_a_request_is_overtaken(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack
):
    one = open_twin(opened, AppClockStore, postgres_engine.url)
    two = open_twin(opened, AppClockStore, postgres_engine.url)
    seen: list[list[Any]] = []

    def overtake() -> None:
        two.append("s", [turn("acknowledged first")])
        seen.append(contents(two.history("s")))

    one.append("s", [turn("written second")], pause=overtake)
    assert seen == [["acknowledged first"]]
    assert contents(one.history("s")) == ["written second", "acknowledged first"]


def test_a_replica_forgets_what_was_just_acknowledged(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack
):
    RowStore(postgres_engine.url).close()
    replica = postgres_engine.replica()
    naive = open_twin(opened, ReplicaReadingStore, postgres_engine.url, replica.url)
    fresh = opened.enter_context(
        holdfast.connect(postgres_engine.url, replicas=[replica.url], namespace="fresh")
    )
    replica.resume_replay()
    replica.pause_replay()
    naive.append("s", [turn("My name is Xiao Li")])
    ack = fresh.append("s", say("My name is Xiao Li"))
    assert contents(naive.history("s")) == []
    assert texts(fresh.history("s", seen=ack)) == ["My name is Xiao Li"]
    replica.resume_replay()
    assert contents(naive.history("s")) == ["My name is Xiao Li"], "it was only stale"


def test_a_read_committed_transaction_mixes_two_versions_of_a_session(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack, ours: Store
):
    builder = open_twin(opened, ContextBuilder, postgres_engine.url)
    other = open_twin(opened, ContextBuilder, postgres_engine.url)
    builder.append("s", [turn(f"old {n}") for n in range(4)])
    mixed = builder.context(
        "s", pause=lambda: other.replace("s", [turn(f"new {n}") for n in range(4)])
    )
    assert mixed == ["old 0", "old 1", "new 2", "new 3"], "a conversation that never was"

    ours.append("s", [say(f"0 {n}") for n in range(4)])
    done = threading.Event()
    versions: list[set[str]] = []

    def read() -> None:
        while not done.is_set():
            versions.append({text.split()[0] for text in texts(ours.history("s"))})

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(1, 40):
        ours.rewrite("s", [say(f"{version} {n}") for n in range(4)])
    done.set()
    reader.join()
    assert len(versions) > 5
    assert all(len(version) == 1 for version in versions)


def test_a_reader_that_follows_a_serial_id_misses_what_was_committed_late(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack
):
    slow = open_twin(opened, SerialCursorStore, postgres_engine.url)
    quick = open_twin(opened, SerialCursorStore, postgres_engine.url)
    followed: list[tuple[int, str]] = []

    def overtake() -> None:
        quick.append("s", [turn("eight")])
        followed.extend(quick.after("s", 0))

    slow.append("s", [turn("seven")], pause=overtake)
    followed += quick.after("s", followed[-1][0])
    assert [content for _, content in followed] == ["eight"], "seven is never followed"
    assert contents(quick.history("s")) == ["seven", "eight"]


def test_ours_gives_no_number_before_the_one_below_it_is_there(
    postgres_engine: PostgresEngine, ours: Store
):
    """The same race: an append that has its number and has not committed, and one behind it."""
    ours.append("s", say("six"))
    followed: list[str] = []
    behind_it = threading.Thread(target=lambda: ours.append("s", say("eight")))
    with psycopg.connect(postgres_engine.url) as slow:
        seven = ours._backend._commands._statements.append([_append("seven")])  # type: ignore[attr-defined]
        assert slow.execute(seven.sql, seven.values).fetchall()[0][1] == 2
        behind_it.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: postgres_engine.query(waits) == [("1",)])
        history = ours.history("s")
        followed += texts(history)
        assert followed == ["six"], "nothing after the gap is to be seen"
    behind_it.join()
    followed += texts(ours.history("s", after=history.last))
    assert followed == ["six", "seven", "eight"]


def _append(text: str) -> Any:
    from holdfast import codec  # noqa: PLC0415 - only this test goes below the surface
    from holdfast.commands import Append  # noqa: PLC0415

    return Append(b"s", [codec.encode(say(text))])


def test_reading_adding_and_writing_back_loses_the_other_s_message(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack, ours: Store
):
    one = open_twin(opened, OverwriteStore, postgres_engine.url)
    two = open_twin(opened, OverwriteStore, postgres_engine.url)
    acknowledged: list[str] = []

    def meanwhile() -> None:
        two.append("s", [turn("My name is Xiao Li")])
        acknowledged.append("My name is Xiao Li")

    one.append("s", [turn("What is the weather?")], pause=meanwhile)
    assert acknowledged == ["My name is Xiao Li"]
    assert contents(one.history("s")) == ["What is the weather?"]

    threads = [
        threading.Thread(target=ours.append, args=("s", say(text)))
        for text in ("My name is Xiao Li", "What is the weather?")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts(ours.history("s"))) == ["My name is Xiao Li", "What is the weather?"]


def test_the_overwriting_store_loses_most_of_what_many_write(
    postgres_engine: PostgresEngine, opened: contextlib.ExitStack, ours: Store
):
    """Without any help from the test: eight threads, ten messages each."""
    stores = [open_twin(opened, OverwriteStore, postgres_engine.url) for _ in range(8)]

    def write(number: int) -> None:
        for count in range(10):
            stores[number].append("s", [turn(f"{number}:{count}")])
            ours.append("s", say(f"{number}:{count}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0].history("s")) < 80
    assert len(ours.history("s")) == 80
