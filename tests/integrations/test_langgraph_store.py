"""LangGraph's long-term memory in our store, on every engine and in both ways of calling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)

import holdfast
from holdfast import Damaged, Durability, SessionState, Store, UsageError
from holdfast.integrations.langgraph_store import HoldfastStore, place_of, session_of
from holdfast.verify import records
from holdfast.verify.engines.sqlite import SqliteEngine
from tests.waiting import wait_until

NAMES = ("a", "a.b", "a/b", "a%2Eb", "a%", ".", "/", "%", "*", "ä", "A", "a\n", "a ", "\x00")


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_engine").url)


@pytest.fixture
def log(url: str) -> Iterator[Store]:
    with holdfast.connect(url, require=Durability.PROCESS) as opened:
        yield opened


def letters(texts: list[str]) -> list[list[float]]:
    """Texts with the same letters are near."""
    return [[float(text.count(one)) for one in "abcdefghijklmnop"] for text in texts]


def both(url: str, log: Store, ops: list[Op], **more: Any) -> list[Any]:
    """What the sync API answers; the async one, which reads the same, must answer alike."""

    async def awaited() -> list[Any]:
        async with await holdfast.connect_async(url, require=Durability.PROCESS) as opened:
            return await HoldfastStore(opened, **more).abatch(ops)

    found = HoldfastStore(log, **more).batch(ops)
    assert asyncio.run(awaited()) == found
    return found


def test_what_is_put_is_found_changed_and_deleted(url: str, log: Store):
    items = HoldfastStore(log)
    items.put(("users", "1"), "name", {"first": "Xiao", "tags": ["a"]})
    items.put(("users", "2"), "name", {"first": "Åke"})
    first = items.get(("users", "1"), "name")
    assert first is not None
    assert (first.namespace, first.key) == (("users", "1"), "name")
    items.put(("users", "1"), "name", {"first": "Li"})
    [second] = both(url, log, [GetOp(("users", "1"), "name")])
    assert second.value == {"first": "Li"}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    items.delete(("users", "1"), "name")
    assert both(url, log, [GetOp(("users", "1"), "name")]) == [None]
    assert [one.key for one in items.search(("users",))] == ["name"]
    items.put(("users", "1"), "name", {"first": "again"})
    again = items.get(("users", "1"), "name")
    assert again is not None
    assert again.created_at > first.created_at


def test_a_batch_reads_first_and_of_two_puts_the_last_counts(url: str, log: Store):
    put: list[Op] = [PutOp(("n",), "k", {"v": 1}), GetOp(("n",), "k"), PutOp(("n",), "k", {"v": 2})]
    assert HoldfastStore(log).batch(put) == [None, None, None]
    [found] = both(url, log, [GetOp(("n",), "k")])
    assert found.value == {"v": 2}
    with pytest.raises(UsageError, match="nothing was written"):
        HoldfastStore(log).batch([PutOp(("n",), "k", {"v": 3}), "get"])  # type: ignore[list-item]
    assert both(url, log, [GetOp(("n",), "k")])[0].value == {"v": 2}


def test_no_two_places_are_one_whatever_their_names_contain(url: str, log: Store):
    places = [((one, two), key) for one in NAMES for two in NAMES[:4] for key in NAMES[:3]]
    assert len({session_of(*place) for place in places}) == len(places)
    assert [place_of(session_of(*place)) for place in places] == places
    some = places[:: len(places) // 12]
    HoldfastStore(log).batch([PutOp(*place, {"place": str(place)}) for place in some])
    found = both(url, log, [GetOp(*place) for place in some])
    assert [one.value for one in found] == [{"place": str(place)} for place in some]


def test_a_search_has_all_below_its_prefix_and_nothing_beside_it(url: str, log: Store):
    HoldfastStore(log).batch(
        [
            PutOp(space, "k", {"n": n})
            for n, space in enumerate([("a",), ("a", "b"), ("ab",), ("b",)])
        ]
    )
    below, all_of_it = both(url, log, [SearchOp(("a",)), SearchOp(())])
    assert {one.namespace for one in below} == {("a",), ("a", "b")}
    assert len(all_of_it) == 4
    first, second = both(url, log, [SearchOp((), limit=3), SearchOp((), limit=3, offset=3)])
    assert [*first, *second] == all_of_it
    times = [one.updated_at for one in all_of_it]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"n": 2}, "b"),
        ({"n": {"$gt": 1}}, "bc"),
        ({"n": {"$gte": 1, "$lt": 3}}, "ab"),
        ({"n": {"$lte": 1}}, "a"),
        ({"n": {"$ne": 2}}, "acd"),
        ({"n": {"$eq": 3}, "in": {"x": "y"}}, "c"),
        ({"in": {"x": {"$ne": "y"}}}, "ab"),
        ({"lacking": None}, "abcd"),
        ({"n": {"$gt": "0"}}, "d"),
    ],
)
def test_filters(sqlite_engine: SqliteEngine, wanted: dict[str, Any], keys: str):
    with holdfast.connect(sqlite_engine.url, require=Durability.PROCESS) as opened:
        _filters(HoldfastStore(opened), wanted, keys)


def _filters(items: HoldfastStore, wanted: dict[str, Any], keys: str) -> None:
    values = {
        "a": {"n": 1, "in": {}},
        "b": {"n": 2, "in": {"x": 0}},
        "c": {"n": 3, "in": {"x": "y"}},
    }
    items.batch([PutOp(("s",), key, value) for key, value in values.items()])
    items.put(("s",), "d", {"n": "text"})
    assert sorted(one.key for one in items.search(("s",), filter=wanted)) == list(keys)
    with pytest.raises(UsageError, match="no operator"):
        items.search(("s",), filter={"n": {"$like": 1}})


def test_namespaces(url: str, log: Store):
    spaces = [("a", "x", "1"), ("a", "y", "1"), ("b", "x", "2"), ("ab",)]
    HoldfastStore(log).batch([PutOp(space, key, {}) for space in spaces for key in "kl"])

    def listed(*conditions: tuple[Any, tuple[str, ...]], **more: Any) -> list[Any]:
        match = tuple(MatchCondition(*one) for one in conditions)
        [found] = both(url, log, [ListNamespacesOp(match, **more)])
        return list(found)

    assert listed() == sorted(spaces)
    assert listed(("prefix", ("a",))) == spaces[:2]
    assert listed(("prefix", ("*", "x"))) == [spaces[0], spaces[2]]
    assert listed(("suffix", ("x", "*")), ("prefix", ("b",))) == [spaces[2]]
    assert listed(max_depth=1) == [("a",), ("ab",), ("b",)]
    assert listed(limit=2, offset=1) == sorted(spaces)[1:3]


def test_items_are_found_by_meaning_and_those_without_vector_come_last(url: str, log: Store):
    index: Any = {"dims": 16, "embed": letters, "fields": ["text", "notes[*]"]}
    HoldfastStore(log, index=index).batch([
        PutOp(("s",), "near", {"text": "aaab", "other": "ccc"}),
        PutOp(("s",), "far", {"text": "ddd", "notes": ["eee", "aabb"]}),
        PutOp(("s",), "none", {"text": "aaa"}, index=False),
        PutOp(("s",), "own", {"text": "aaa", "other": "mmm"}, index=["other"]),
    ])  # fmt: skip
    [found] = both(url, log, [SearchOp(("s",), query="aaa")], index=index)
    assert [one.key for one in found] == ["near", "far", "own", "none"]
    assert found[0].score == pytest.approx(3 / 10**0.5, abs=0.02)
    assert found[3].score is None
    other: Any = {"dims": 8, "embed": lambda texts: [row[:8] for row in letters(texts)]}
    [unscored] = both(url, log, [SearchOp(("s",), query="aaa")], index=other)
    assert [one.score for one in unscored] == [None] * 4


def test_an_item_expires_on_the_engine_and_a_read_begins_its_time_again(url: str, log: Store):
    items = HoldfastStore(log, ttl={"default_ttl": 10, "refresh_on_read": False})
    items.put(("s",), "k", {"v": 1})
    items.put(("s",), "ever", {"v": 1}, ttl=None)
    name = session_of(("s",), "k")
    before = log.stat(name)
    assert before.expires_at is not None
    assert log.stat(session_of(("s",), "ever")).expires_at is None
    found = items.get(("s",), "k")
    assert log.stat(name) == before  # a read alone writes nothing
    assert items.get(("s",), "k", refresh_ttl=True) == found
    assert items.get(("s",), "ever", refresh_ttl=True) is not None
    after = log.stat(name)
    assert after.last == before.last + 1
    assert after.expires_at is not None
    assert after.expires_at >= before.expires_at
    [same] = items.search(("s",), filter={"v": 1}, limit=1, offset=1, refresh_ttl=True)
    assert log.stat(name).last == before.last + 2
    assert same.value == {"v": 1}
    items.put(("s",), "k", {"v": 2}, ttl=0.001)  # 60 ms
    wait_until(lambda: items.get(("s",), "k") is None)
    assert both(url, log, [ListNamespacesOp()])[0] == [("s",)]
    assert [one.key for one in items.search(("s",))] == ["ever"]


def test_a_busy_item_does_not_grow_and_a_deletion_of_nothing_leaves_nothing(log: Store):
    items = HoldfastStore(log)
    for number in range(50):
        items.put(("s",), "k", {"n": number})
    assert log.stat(session_of(("s",), "k")).count <= 2
    items.delete(("s",), "never")
    assert log.stat(session_of(("s",), "never")).state is SessionState.NEVER


def test_a_damaged_item_is_named_and_hides_no_other(
    url: str, log: Store, caplog: pytest.LogCaptureFixture
):
    items = HoldfastStore(log)
    items.batch([PutOp(("s",), key, {"v": key}) for key in "ab"])
    records.flip_one(url, "default", session_of(("s",), "a"))
    with pytest.raises(Damaged, match="the item 'a'"):
        items.get(("s",), "a")
    with caplog.at_level(logging.WARNING):
        assert [one.key for one in items.search(("s",))] == ["b"]
    assert "'a'" in caplog.text
    items.put(("s",), "a", {"v": "mended"})
    mended = items.get(("s",), "a")
    assert mended is not None
    assert mended.value == {"v": "mended"}
