"""Memories and summaries can be listed, and one memory erased for good: forgotten, on every engine."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

import holdfast
from holdfast import SessionState, Source, UsageError, codec
from holdfast.commands import ERASED, MEMORIES, SUMMARIES, ExportSession, Read
from holdfast.recall.index_commands import Search
from holdfast.recall.words import asked
from tests.contract.harness import AnyStore, Harness, Opener, say, texts
from tests.exports import export, head
from tests.recall.models import Counting, Letters
from tests.waiting import wait_until

LOG = MEMORIES + b"u"


@pytest.fixture
def store(open_store: Opener) -> AnyStore:
    return open_store(embedder=Letters(), summarizer=Counting())


def found(store: AnyStore, scope: str, query: str) -> list[str]:
    return [hit.text for hit in store.recall(scope, query, k=50)]


def numbers(history: Any) -> list[int | None]:
    return [message.seq for message in history]


def remember_all(store: AnyStore, *kept: str, scope: str = "u") -> None:
    for text in kept:
        store.remember(scope, text, key=text)


def entries_of(harness: Harness, numbers: list[int], words: list[str]) -> list[int]:
    """What the engine's own index finds, without looking at the log."""
    with holdfast.connect(harness.url, embedder=Letters(), background_indexing=False) as store:
        model = Letters()
        assert store._backend.execute(Read(LOG)).rows
        vector, sketch = b"\1" * 64, b"\1" * 8
        terms = [term for word in words for term in asked(word)]
        search = Search(LOG, f"{model.name}/{model.dimension}", vector, sketch, terms, 1000)
        return sorted(one.seq for one in store._backend.execute(search) if one.seq in numbers)


def test_memories_are_listed_with_numbers_meta_and_source_in_pages(store: AnyStore):
    assert (store.memories("u").state, texts(store.memories("u"))) == (SessionState.NEVER, [])
    store.append("u", say("no memory"))
    store.remember("u", "one", meta={"sure": True})
    store.remember("u", "two", source=Source("u", 1, 1))
    store.remember("u", "three")
    store.remember("v", "of another scope")
    kept = store.memories("u")
    assert (texts(kept), numbers(kept), kept.last) == (["one", "two", "three"], [1, 2, 3], 3)
    assert kept[0].extra == {"meta": {"sure": True}}
    assert kept[1].extra == {"from": {"session": "u", "first": 1, "last": 1}}
    assert texts(store.memories("u", limit=2)) == ["two", "three"]
    assert texts(store.memories("u", after=0, limit=2)) == ["one", "two"]
    assert texts(store.memories("u", before=3, limit=1)) == ["two"]
    assert texts(store.memories("u", limit=0)) == []


def test_two_memories_of_one_message_are_two_however_long_what_they_share(store: AnyStore):
    long = "she said " * 200
    first = store.remember("u", long + "yes", source=Source("u", 1, 1))
    second = store.remember("u", long + "no", source=Source("u", 1, 1))
    assert not first.repeated
    assert not second.repeated
    assert store.remember("u", long + "no", source=Source("u", 1, 1)).repeated
    assert texts(store.memories("u")) == [long + "yes", long + "no"]


def test_a_damaged_memory_is_named(store: AnyStore, harness: Harness):
    remember_all(store, "one", "two")
    whole = list(store.export())
    broken = [line.replace('"two"', '"tow"') for line in whole]
    other = holdfast.connect(harness.url, namespace="x")
    with other:
        other.load(broken)
        kept = other.memories("u")
        assert (texts(kept), [one.seq for one in kept.damaged]) == (["one"], [2])
        assert other.forget_memory("u", 2).memories == 1, "damage can be erased too"
        assert other.memories("u").damaged == ()


def test_summaries_are_listed_with_what_they_tell(store: AnyStore):
    assert texts(store.summaries("u")) == []
    store.append("u", [say(f"turn {number}") for number in range(30)])
    store.summarize("u", keep=20)
    store.summarize("u", keep=5)
    made = store.summaries("u")
    assert numbers(made) == [1, 2]
    told = [(one.extra["from"]["first"], one.extra["from"]["last"]) for one in made]
    assert told == [(1, 10), (11, 25)]
    store.forget("u")
    assert (texts(store.summaries("u")), store.summaries("u").state) == ([], SessionState.FORGOTTEN)


def test_one_memory_is_erased_and_the_others_stay_where_they_are(store: AnyStore, harness: Harness):
    remember_all(store, "likes tea", "the SECRETWORD number", "lives in Oslo")
    assert "the SECRETWORD number" in found(store, "u", "SECRETWORD")
    size = sum(map(len, (record for _, record in exported(harness).rows)))
    erased = store.forget_memory("u", 2)
    assert (erased.session, erased.messages, erased.memories) == ("u", 0, 1)
    assert erased.scrubbed is harness.scrubs
    if harness.scrubs:
        assert harness.leftovers(b"SECRETWORD") == []
    kept = store.memories("u")
    assert (texts(kept), numbers(kept), kept.last) == (["likes tea", "lives in Oslo"], [1, 3], 3)
    assert sorted(found(store, "u", "SECRETWORD")) == ["likes tea", "lives in Oslo"]
    assert entries_of(harness, [1, 2, 3], ["SECRETWORD", "Oslo"]) == [1, 3]
    copy = exported(harness)
    assert dict(copy.rows)[2] == ERASED
    assert copy.facts.bytes == sum(len(record) for _, record in copy.rows)
    assert copy.facts.bytes == size - erased.bytes + len(ERASED)
    assert store.remember("u", "more").first == 4


def exported(harness: Harness) -> Any:
    with holdfast.connect(harness.url) as store:
        return store._backend.execute(ExportSession(LOG))


def test_what_stands_there_is_a_record_that_carries_nothing():
    message = codec.decode(ERASED)
    assert (message.role, message.content, message.extra, message.unknown) == (
        "erased",
        None,
        {},
        {},
    )
    assert codec.encode(message) == ERASED


def test_nothing_brings_an_erased_memory_back(open_store: Opener, store: AnyStore):
    remember_all(store, "likes tea", "the secret number")
    store.forget_memory("u", 2)
    assert store.remember("u", "the secret number", key="the secret number").repeated
    assert store.reindex("u") == 2
    lines = list(store.export())
    assert not any("secret" in line for line in lines)
    other = open_store(namespace="x", embedder=Letters())
    other.load(lines)
    assert list(other.export()) == lines
    for one in (store, other, open_store(embedder=Letters())):
        assert texts(one.memories("u")) == ["likes tea"]
        assert found(one, "u", "secret number") == ["likes tea"]
        assert one.remember("u", "the secret number", key="the secret number").repeated
        assert (one.index_lag("u"), texts(one.memories("u"))) == (0, ["likes tea"])


def test_what_is_not_there_is_no_error_and_changes_nothing(store: AnyStore):
    assert store.forget_memory("never", 1).memories == 0
    assert store.memories("never").state is SessionState.NEVER
    remember_all(store, "likes tea", "to be erased")
    assert store.forget_memory("u", 2).memories == 1
    before = list(store.export())
    for number in (0, 2, 3, 2**40):
        again = store.forget_memory("u", number)
        assert (again.messages, again.memories, again.bytes) == (0, 0, 0), number
    assert list(store.export()) == before
    for wrong in (-1, "1", None, True):
        with pytest.raises(UsageError, match="number must be a whole number"):
            store.forget_memory("u", wrong)  # type: ignore[arg-type]
    store.forget("u")
    assert store.forget_memory("u", 1).memories == 0
    assert store.memories("u").state is SessionState.FORGOTTEN


def test_pages_hold_as_many_as_asked_for_whatever_was_erased(store: AnyStore):
    remember_all(store, *(f"memory {number}" for number in range(1, 13)))
    for number in (3, 4, 5, 6, 7, 10, 11, 12):
        store.forget_memory("u", number)
    assert numbers(store.memories("u")) == [1, 2, 8, 9]
    assert numbers(store.memories("u", limit=3)) == [2, 8, 9]
    assert numbers(store.memories("u", after=1, limit=2)) == [2, 8]
    assert numbers(store.memories("u", before=8, limit=2)) == [1, 2]
    assert numbers(store.memories("u", limit=50)) == [1, 2, 8, 9]


def test_an_indexer_that_has_read_it_before_does_not_index_it_after(harness: Harness):
    """Another process, between reading the log and writing what it has made of it."""
    held, erased = threading.Event(), threading.Event()
    model = Letters()

    def wait(_call: int) -> None:
        held.set()
        assert erased.wait(30)

    model.before = wait
    with (
        holdfast.connect(harness.url, embedder=Letters(), background_indexing=False) as store,
        holdfast.connect(harness.url, embedder=model, background_indexing=False) as slow,
    ):
        remember_all(store, "likes tea", "the SECRETWORD number", "lives in Oslo")
        late = threading.Thread(target=slow.wait_for, args=("u",))
        late.start()
        assert held.wait(30)
        assert store.forget_memory("u", 2).memories == 1
        erased.set()
        late.join(30)
        assert not late.is_alive()
        assert store.index_lag("u") == 0
    assert entries_of(harness, [1, 2, 3], ["SECRETWORD", "tea", "Oslo"]) == [1, 3]


def test_memories_that_are_added_meanwhile_keep_their_numbers(harness: Harness):
    with holdfast.connect(harness.url, embedder=Letters(), background_indexing=False) as store:
        remember_all(store, *(f"memory {number}" for number in range(20)))
        barrier = threading.Barrier(2, timeout=30)

        def add() -> None:
            barrier.wait()
            remember_all(store, *(f"later {number}" for number in range(20)))

        adding = threading.Thread(target=add)
        adding.start()
        barrier.wait()
        gone = [store.forget_memory("u", number).memories for number in range(1, 21, 2)]
        adding.join(30)
        assert gone == [1] * 10
        assert numbers(store.memories("u")) == [*range(2, 21, 2), *range(21, 41)]
        assert len(found(store, "u", "memory")) == 30
        copy = store._backend.execute(ExportSession(LOG))
        assert copy.facts.bytes == sum(len(record) for _, record in copy.rows)


def test_an_expired_memory_is_not_there(open_store: Opener):
    store = open_store(embedder=Letters(), ttl_s=0.05)
    remember_all(store, "likes tea")
    wait_until(lambda: store.memories("u").state is SessionState.EXPIRED)
    assert store.forget_memory("u", 1).memories == 0
    assert texts(store.memories("u")) == []


def test_many_memories_compared_by_the_engine_lose_one_entry(harness: Harness):
    """More than the client compares by itself on Redis."""
    with holdfast.connect(harness.url, embedder=Letters(), background_indexing=False) as store:
        remember_all(store, *(f"memory {number}" for number in range(300)), "the SECRETWORD")
        assert "the SECRETWORD" in found(store, "u", "SECRETWORD")
        assert store.forget_memory("u", 301).memories == 1
        assert store.index_lag("u") == 0, "the others stay indexed"
        assert "the SECRETWORD" not in found(store, "u", "SECRETWORD")
        store.remember("u", "one more SECRETWORD")
        assert "one more SECRETWORD" in found(store, "u", "SECRETWORD")
    assert entries_of(harness, [1, 301, 302], ["SECRETWORD", "memory"]) in ([1, 302], [302])


@pytest.mark.parametrize("made", [5, "x", [], {"session": "u"}, {"session": 1, "first": {}}])
def test_a_loaded_record_with_an_odd_source_hides_nothing(store: AnyStore, made: Any):
    odd = holdfast.Message("memory", "likes tea", extra={"from": made, "meta": 3})
    record = json.loads(codec.encode(odd))
    logs = [
        {**head("", 1), "session_b64": base64.b64encode(log).decode()}
        for log in (LOG, SUMMARIES + b"u")
    ]
    for log in logs:
        del log["session"]
    store.load(export(*([log, {"seq": 1, "record": record}] for log in logs)))
    store.append("u", [say(f"turn {number}") for number in range(9)])
    [hit] = [hit for hit in store.recall("u", "tea", k=50) if hit.kind == "memory"]
    assert (hit.text, hit.source, hit.meta) == ("likes tea", None, {})
    assert store.recall("u", "tea", k=50, filter={"sure": True}).hits == ()
    assert store.context("u", "tea", tokens=60).messages
