"""How our saver stores LangGraph's threads: little by little, found by key, whole after any crash."""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import operator
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast import Durability, Message, Store
from holdfast.integrations.checkpoint_log import INDEX, Catalog, Entry, record
from holdfast.integrations.checkpoint_values import squeezed
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.verify import records
from tests.integrations.killed import checkpoint, config

ENGINES = ("sqlite", "redis", "postgres")


@pytest.fixture(params=ENGINES)
def engine_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_engine").url
    return url


@pytest.fixture
def on_engine(engine_url: str) -> Iterator[Store]:
    with holdfast.connect(engine_url, require=Durability.PROCESS) as store:
        yield store


class Counted:
    """Counts the records that a store gives back."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        self.calls: Counter[str] = Counter()
        for name in ("history", "messages"):
            monkeypatch.setattr(store, name, self._counting(name, getattr(store, name)))

    def _counting(self, name: str, operation: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            found = operation(*args, **more)
            self.calls[name] += 1
            self.records += len(found)
            return found

        return call


def fill(saver: HoldfastSaver, thread: str, turns: int, *, first: int = 0) -> Any:
    at = config(thread, checkpoint(first - 1)["id"] if first else None)
    for turn in range(first, turns):
        made = checkpoint(turn)
        about: Any = {"step": turn, "odd": bool(turn % 2)}
        at = saver.put(at, made, about, made["channel_versions"])
        saver.put_writes(at, [("messages", f"to {turn + 1}")], f"task-{turn}")
    return at


def test_an_agent_killed_before_any_of_its_writes_goes_on_whole(engine_url: str):
    command = [sys.executable, "-m", "tests.integrations.killed", engine_url]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2 * 4 + 2  # turns of two writes, a pruning, the copy


@pytest.mark.parametrize("turns", [40, 320])
def test_reading_the_latest_checkpoint_does_not_read_the_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch, turns: int
):
    fill(HoldfastSaver(store), "t", turns)
    total = store.stat("t").count
    assert total >= 3 * turns
    counted = Counted(store, monkeypatch)
    found = HoldfastSaver(store).get_tuple(config("t"))  # it has nothing in memory
    assert found is not None
    assert found.checkpoint["channel_values"] == checkpoint(turns - 1)["channel_values"]
    assert found.pending_writes == [(f"task-{turns - 1}", "messages", f"to {turns}")]
    assert counted.records < 60


def test_a_value_is_stored_once_however_often_it_is_in_a_checkpoint(store: Store):
    saver = HoldfastSaver(store)
    fill(saver, "t", 64)
    whole = sum(len(str(checkpoint(turn)["channel_values"])) for turn in range(64))
    assert store.stat("t").bytes < whole / 4
    again, versions = checkpoint(64), checkpoint(63)["channel_versions"]
    again["channel_values"], again["channel_versions"] = checkpoint(63)["channel_values"], versions
    before = store.stat("t").bytes
    saver.put(config("t", checkpoint(63)["id"]), again, {"step": 64}, {})
    assert store.stat("t").bytes - before < 2500  # a tenth of the value


def test_by_id_by_metadata_and_page_by_page_without_reading_the_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    fill(HoldfastSaver(store), "t", 200)
    saver = HoldfastSaver(store)
    counted = Counted(store, monkeypatch)
    found = saver.get_tuple(config("t", checkpoint(17)["id"]))
    assert found is not None
    assert found.metadata["step"] == 17
    assert found.parent_config == config("t", checkpoint(16)["id"])
    assert [one.metadata["step"] for one in saver.list(config("t"), filter={"step": 7})] == [7]
    before = config("t", checkpoint(100)["id"])
    listed = saver.list(config("t"), filter={"odd": True}, before=before, limit=3)
    assert [one.metadata["step"] for one in listed] == [99, 97, 95]
    assert not list(saver.list(config("t"), filter={"nobody": "wrote this"}))
    assert counted.records < store.stat("t").count / 3


def test_two_processes_and_a_pruning_in_between(on_engine: Store):
    one, other = HoldfastSaver(on_engine), HoldfastSaver(on_engine)
    fill(one, "t", 20)
    fill(other, "t", 30, first=20)
    fill(one, "t", 40, first=30)
    assert len(list(other.list(config("t")))) == 40
    other.prune(["t"])
    fill(one, "t", 43, first=40)  # refers to nothing of what was pruned
    for saver in (one, other, HoldfastSaver(on_engine)):
        steps = [found.metadata["step"] for found in saver.list(config("t"))]
        assert steps == [42, 41, 40, 39]
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == checkpoint(42)["channel_values"]
    one.delete_thread("t")
    assert other.get_tuple(config("t")) is None
    fill(other, "t", 2)
    assert [found.metadata["step"] for found in one.list(config("t"))] == [1, 0]


@pytest.mark.parametrize("is_cold", [False, True])
def test_a_put_between_whose_calls_another_process_prunes_loses_no_value(
    on_engine: Store, engine_url: str, monkeypatch: pytest.MonkeyPatch, is_cold: bool
):
    made = checkpoint(9)
    with holdfast.connect(engine_url, require=Durability.PROCESS) as elsewhere:

        def calls_of_a_put(at: int, *, goes_on: bool) -> int:
            thread = f"{at}-{goes_on}"
            saver, other = HoldfastSaver(on_engine), HoldfastSaver(elsewhere)
            parent = fill(saver, thread, 9)
            calls = itertools.count()

            def between(real: Any, *args: Any, **more: Any) -> Any:
                if next(calls) == at:
                    other.prune([thread])
                    fill(other, thread, 11 if goes_on else 0, first=10)
                return real(*args, **more)

            with monkeypatch.context() as patched:
                for name in ("append", "history", "messages"):
                    real = getattr(on_engine, name)
                    patched.setattr(on_engine, name, functools.partial(between, real))
                writer = HoldfastSaver(on_engine) if is_cold else saver
                writer.put(parent, made, {"step": 9}, made["channel_versions"])
            for one in (writer, other, HoldfastSaver(elsewhere)):
                assert one.get_tuple(config(thread, made["id"])) is not None
                for found in one.list(config(thread)):
                    wanted = checkpoint(found.metadata["step"])["channel_values"]
                    assert found.checkpoint["channel_values"] == wanted
            return next(calls)

        for goes_on in (False, True):
            at = 0
            while calls_of_a_put(at, goes_on=goes_on) > at:
                at += 1
            assert at >= (3 if is_cold else 1)  # what is not in memory is read before


def test_where_others_write_without_pause_a_put_is_done_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    saver, other = HoldfastSaver(store), HoldfastSaver(store)
    at = fill(saver, "t", 20)
    real = store.append

    def crowded(session: str, messages: Any, **more: Any) -> Any:
        if more.get("expect") is not None:
            real("t", Message("writes", None, extra={"langgraph": writes}))
        return real(session, messages, **more)

    kept = [one for one in store.history("t") if one.role == "writes"][-1]
    writes = {**kept.extra["langgraph"], "task_id": "another"}
    monkeypatch.setattr(store, "append", crowded)
    made = checkpoint(20)
    saver.put(at, made, {"step": 20}, made["channel_versions"])
    monkeypatch.undo()
    for one in (saver, other, HoldfastSaver(store)):
        found = one.get_tuple(config("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == made["channel_values"]
        assert len(list(one.list(config("t")))) == 21


def test_many_tasks_at_once_lose_nothing(store: Store, url: str):
    async def main() -> None:
        async with await holdfast.connect_async(url) as opened:
            saver = HoldfastSaver(opened)
            made = checkpoint(0)
            at = await saver.aput(config("t"), made, {"step": 0}, made["channel_versions"])
            work: list[Any] = [
                saver.aput_writes(at, [("messages", number)], f"task-{number:03}")
                for number in range(100)
            ]
            later = checkpoint(1)
            work.insert(50, saver.aput(at, later, {"step": 1}, later["channel_versions"]))
            await asyncio.wait_for(asyncio.gather(*work), 60)
            found = await saver.aget_tuple(at)
            assert found is not None
            assert [one[2] for one in found.pending_writes or ()] == list(range(100))

    asyncio.run(main())
    found = HoldfastSaver(store).get_tuple(config("t"))
    assert found is not None
    assert found.metadata["step"] == 1


def test_what_was_before_in_another_namespace_is_told_by_id_not_by_who_wrote_first(store: Store):
    saver = HoldfastSaver(store)
    early, parent, later = (f"1f000000-0000-6000-8000-{number:012}" for number in range(3))
    side: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "side"}}
    for name in (early, later):  # the graph's own put was under way, and came in last
        saver.put(side, {**empty_checkpoint(), "id": name}, {}, {})
    before = saver.put(config("t"), {**empty_checkpoint(), "id": parent}, {}, {})
    assert [one.checkpoint["id"] for one in saver.list(side, before=before)] == [early]


def test_writes_that_came_before_their_checkpoint_are_pending_on_it(store: Store):
    saver = HoldfastSaver(store)
    fill(saver, "t", 20)
    late = config("t", checkpoint(20)["id"])
    saver.put_writes(late, [("messages", "early")], "task-early")
    side: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "side"}}
    for _ in range(20):
        saver.put(side, empty_checkpoint(), {}, {})
    made = checkpoint(20)
    saver.put(config("t", checkpoint(19)["id"]), made, {"step": 20}, made["channel_versions"])
    for one in (saver, HoldfastSaver(store)):
        found = one.get_tuple(config("t"))
        assert found is not None
        assert found.pending_writes == [("task-early", "messages", "early")]


def old_layout(store: Store, thread: str, turns: int) -> None:
    """A thread as the first release stored it."""
    serde = JsonPlusSerializer()

    def packed(value: Any) -> list[str]:
        kind, data = serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode()]

    for turn in range(turns):
        made = {**checkpoint(turn), "channel_versions": {"messages": turn + 1, "turn": turn + 1}}
        kept = {"ns": "", "checkpoint_id": made["id"], "checkpoint": packed(made)}
        kept["parent"] = checkpoint(turn - 1)["id"] if turn else None
        kept["metadata"] = packed({"step": turn, "odd": bool(turn % 2)})
        store.append(thread, Message("checkpoint", None, extra={"langgraph": kept}))
        written = {"ns": "", "checkpoint_id": made["id"], "task_id": f"task-{turn}"}
        written |= {"task_path": "", "writes": [["messages", packed(f"to {turn + 1}")]]}
        store.append(thread, Message("writes", None, extra={"langgraph": written}))


def test_a_thread_of_the_first_release_is_read_and_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    old_layout(store, "t", 40)
    saver = HoldfastSaver(store)
    found = saver.get_tuple(config("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == checkpoint(39)["channel_values"]
    assert found.pending_writes == [("task-39", "messages", "to 40")]
    assert saver.get_next_version(found.checkpoint["channel_versions"]["turn"], None) == 41
    fill(saver, "t", 44, first=40)
    counted = Counted(store, monkeypatch)
    fresh = HoldfastSaver(store)
    latest = fresh.get_tuple(config("t"))
    assert latest is not None
    assert latest.checkpoint["channel_values"] == checkpoint(43)["channel_values"]
    assert counted.records < 60  # converted: the thread is not read whole any more
    odd = [one.metadata["step"] for one in fresh.list(config("t"), filter={"odd": True})]
    assert odd == list(range(43, 0, -2))
    fresh.prune(["t"])
    assert [one.metadata["step"] for one in fresh.list(config("t"))] == [43]


def test_versions_of_other_savers_go_on(store: Store):
    saver = HoldfastSaver(store)
    version = saver.get_next_version(None, None)
    for _ in range(3):
        later = saver.get_next_version(version, None)
        assert later > version
        version = later
    theirs = "00000000000000000000000000000041.0.3511243263461"
    assert saver.get_next_version(theirs, None).startswith("0" * 30 + "42.")


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def test_a_thread_prunes_itself_and_goes_on(on_engine: Store):
    plan: Any = StateGraph(State)
    plan.add_node("one", lambda _: {"said": ["one"]})
    plan.add_edge(START, "one")
    plan.add_edge("one", END)
    saver = HoldfastSaver(on_engine, keep=5)
    graph = plan.compile(checkpointer=saver)
    sizes = []
    for _ in range(30):
        graph.invoke({"said": ["x"]}, config("t"))
        sizes.append(on_engine.stat("t").count)
    assert graph.get_state(config("t")).values["said"] == ["x", "one"] * 30
    assert len(list(saver.list(config("t")))) < 10
    assert max(sizes) < 90


def test_pruning_keeps_the_newest_of_each_namespace_and_what_is_pending(store: Store):
    saver = HoldfastSaver(store, keep=3)
    side: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "side"}}
    saver.put(side, {**empty_checkpoint(), "id": "s"}, {}, {})
    lone = saver.put(config("t"), {**empty_checkpoint(), "id": "lone"}, {"step": -1}, {})
    saver.put_writes(lone, [("messages", "not applied")], "task")
    fill(saver, "t", 12)
    found = saver.get_tuple(lone)
    assert found is not None
    assert found.pending_writes == [("task", "messages", "not applied")]
    assert saver.get_tuple(side) is not None
    assert saver.get_tuple(config("t", checkpoint(0)["id"])) is None


def test_pruning_keeps_what_delta_channels_are_made_from(store: Store):
    saver = HoldfastSaver(store)
    at = config("t")
    for step in range(9):
        made: Any = {**empty_checkpoint(), "id": f"id-{step}"}
        about: Any = {"step": step}
        if step % 4 == 0:
            made["channel_values"] = {"ch": _DeltaSnapshot(list(range(step)))}
            made["channel_versions"] = {"ch": step + 1}
        else:
            about["counters_since_delta_snapshot"] = {"ch": (step % 4, step % 4)}
        at = saver.put(at, made, about, made["channel_versions"])
        saver.put_writes(at, [("ch", step)], f"task-{step}")
    whole = saver.get_delta_channel_history(config=config("t", "id-7"), channels=["ch"])["ch"]
    assert whole["seed"].value == [0, 1, 2, 3]
    assert [one[2] for one in whole["writes"]] == [4, 5, 6]
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    assert [one.metadata["step"] for one in saver.list(config("t"))] == [8]  # it has the value
    last: Any = {"step": 9, "counters_since_delta_snapshot": {"ch": (4, 4)}}
    saver.put(config("copy", "id-7"), {**empty_checkpoint(), "id": "last"}, last, {})
    saver.prune(["copy"])
    assert [one.metadata["step"] for one in saver.list(config("copy"))] == [9, 7, 6, 5, 4]
    found = saver.get_delta_channel_history(config=config("copy"), channels=["ch"])["ch"]
    assert found["seed"].value == [0, 1, 2, 3]
    assert [one[2] for one in found["writes"]] == [4, 5, 6, 7]


def test_a_copy_joins_what_is_there_and_is_seen_as_a_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    saver = HoldfastSaver(store)
    fill(saver, "t", 30)
    saver.put(config("u"), {**empty_checkpoint(), "id": "own"}, {"step": -1}, {})
    monkeypatch.setattr("holdfast.limits.BATCH_MESSAGES_MAX", 20)  # it takes several appends
    saver.copy_thread("t", "u")
    for one in (saver, HoldfastSaver(store)):
        listed = [(found.checkpoint, found.pending_writes) for found in one.list(config("u"))]
        assert listed[:-1] == [(f.checkpoint, f.pending_writes) for f in one.list(config("t"))]
        assert listed[-1][0]["id"] == "own"
    fill(saver, "u", 32, first=30)
    saver.delete_thread("t")
    assert len(list(HoldfastSaver(store).list(config("u")))) == 33


def test_a_damaged_index_hides_nothing(store: Store, url: str):
    saver = HoldfastSaver(store)
    fill(saver, "t", 40)
    with records._records_of(url, "default", b"t") as stored:
        [*_, (record, put)] = [one for one in stored if b'"run":' in one[0]]
        put(record[:-40] + b"x" + record[-39:])
    fresh = HoldfastSaver(store)
    assert [one.metadata["step"] for one in fresh.list(config("t"))] == list(range(39, -1, -1))
    fill(fresh, "t", 42, first=40)
    assert len(list(HoldfastSaver(store).list(config("t")))) == 42


def test_what_another_thread_sees_of_a_catalog_never_lacks_what_was_known():
    """While older entries are taken in: a reader has no lock, and writes that it missed were lost."""
    known, older = Entry(9, "", "two", writes=True), Entry(2, "", "one", writes=True)
    made = Entry(8, "", "two", writes=False)
    catalog = Catalog()
    for entry in (made, known):
        catalog._add(entry)
    catalog.missing = [5]
    run = record(INDEX, {"run": squeezed([older.form(5)])})
    seen = []

    def watched(*_: object) -> None:  # between any two steps of the other thread
        seen.append((catalog.writes.get(known.place), catalog.checkpoints.get(made.place)))

    sys.settrace(lambda *_: lambda *_: watched())
    try:
        catalog.fill({5: run})
    finally:
        sys.settrace(None)
    assert seen
    assert set(map(str, seen)) == {str(([9], made))}
    assert catalog.writes == {known.place: [9], older.place: [2]}
    assert [entry.seq for entry in catalog.entries] == [2, 8, 9]
