"""Our store as LangGraph's checkpointer."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import holdfast
from holdfast import Damaged, Store, UsageError
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.verify.records import flip_one
from tests.integrations import agent

THREAD: Any = {"configurable": {"thread_id": "user-42"}}


@pytest.mark.parametrize("api", ["Store", "AsyncStore"])
def test_it_passes_the_conformance_suite_of_langgraph_in_full(disk_path: Path, api: str):
    opened = 0

    async def saver() -> AsyncIterator[HoldfastSaver]:
        nonlocal opened
        opened += 1
        url = f"sqlite:///{disk_path}/{opened}.db"
        if api == "Store":
            with holdfast.connect(url) as store:
                yield HoldfastSaver(store)
        else:
            async with await holdfast.connect_async(url) as store:
                yield HoldfastSaver(store)

    report = asyncio.run(validate(checkpointer_test(name=api)(saver)))
    failed = {name: one.failures for name, one in report.results.items() if one.passed is not True}
    assert not failed
    assert sum(one.tests_passed for one in report.results.values()) > 70


def test_an_agent_goes_on_where_it_was_killed(url: str):
    command = [sys.executable, "-c", "from tests.integrations import agent; agent.main()", url]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"step 1 is done\n"
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait(30)
        child.stdout.close()
    with holdfast.connect(url) as store:
        graph = agent.graph(HoldfastSaver(store), nullcontext)
        assert graph.get_state(THREAD).values["said"] == ["hello", "one"]
        assert graph.invoke(None, THREAD)["said"] == ["hello", "one", "two"]
        assert len(list(graph.get_state_history(THREAD))) == 4


def test_the_latest_checkpoint_is_the_one_put_last_whatever_its_clock_said(store: Store):
    saver = HoldfastSaver(store)
    ids = ["1f000000-0000-6000-8000-000000000002", "1f000000-0000-6000-8000-000000000001"]
    for name in ids:
        saver.put(THREAD, {**empty_checkpoint(), "id": name}, {}, {})
    found = saver.get_tuple(THREAD)
    assert found is not None
    assert found.checkpoint["id"] == ids[1]
    listed = [one.checkpoint["id"] for one in saver.list(THREAD)]
    assert listed == ids[::-1]
    before: Any = {"configurable": {**THREAD["configurable"], "checkpoint_id": ids[1]}}
    assert [one.checkpoint["id"] for one in saver.list(THREAD, before=before)] == [ids[0]]


def test_a_task_writes_once_and_its_error_is_the_last_one(store: Store):
    saver = HoldfastSaver(store)
    config = saver.put(THREAD, empty_checkpoint(), {}, {})
    for value in ("first", "second"):
        saver.put_writes(config, [("messages", value), ("__error__", value)], "task-1")
    found = saver.get_tuple(config)
    assert found is not None
    written = sorted(found.pending_writes or [])
    assert written == [("task-1", "__error__", "second"), ("task-1", "messages", "first")]


def test_a_checkpoint_that_is_put_again_is_the_latest(store: Store):
    saver = HoldfastSaver(store)
    again, other = empty_checkpoint(), empty_checkpoint()
    for step, checkpoint in enumerate((again, other, again)):
        saver.put(THREAD, checkpoint, {"step": step}, {})
    listed = [(one.checkpoint["id"], one.metadata["step"]) for one in saver.list(THREAD)]
    assert listed == [(again["id"], 2), (other["id"], 1)]


def test_it_does_not_go_back_unawares_behind_a_damaged_record(store: Store, url: str):
    saver = HoldfastSaver(store)
    first = saver.put(THREAD, empty_checkpoint(), {"step": 0}, {})
    saver.put(THREAD, empty_checkpoint(), {"step": 1}, {})
    flip_one(url, "default", "user-42")  # of two records, the second
    with pytest.raises(Damaged, match=r"records \[2\] cannot be read"):
        saver.get_tuple(THREAD)
    found = saver.get_tuple(first)
    assert found is not None
    assert found.metadata["step"] == 0
    with pytest.raises(Damaged):
        saver.copy_thread("user-42", "copy")


def test_an_unknown_way_to_prune_changes_nothing(store: Store):
    saver = HoldfastSaver(store)
    for step in range(2):
        saver.put(THREAD, empty_checkpoint(), {"step": step}, {})
    with pytest.raises(UsageError, match="keep_latest or delete"):
        saver.prune(["user-42"], strategy="half")
    assert len(list(saver.list(THREAD))) == 2
    with pytest.raises(UsageError, match="keep must be"):
        HoldfastSaver(store, keep=0)


class Forgetful:
    """What a pickle of it loses is in its serialized form."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getstate__(self) -> dict[str, Any]:
        return {"text": "lost"}


class Named(JsonPlusSerializer):
    """Has such a value in the state."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return super().dumps_typed([obj.text] if isinstance(obj, Forgetful) else obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        found = super().loads_typed(data)
        is_text = isinstance(found, list) and isinstance(found[0], str)
        return Forgetful(found[0]) if is_text else found


@pytest.mark.parametrize("serde", [JsonPlusSerializer, Named])
def test_a_value_is_read_as_it_was_written_however_often_and_whatever_readers_did_to_it(
    store: Store, serde: type[JsonPlusSerializer]
):
    saver = HoldfastSaver(store, serde=serde())
    text = "word " * 100
    made = {
        **empty_checkpoint(),
        "channel_values": {"messages": [HumanMessage(text, id="1"), {"a": [1]}], "text": [text]},
        "channel_versions": {"messages": 1, "text": 1},
    }
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    saver.put(at, made, {}, made["channel_versions"])  # type: ignore[arg-type]
    for _ in range(5):
        found = saver.get_tuple(at)
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert values["messages"] == [HumanMessage(text, id="1"), {"a": [1]}]
        assert getattr(values["text"], "text", values["text"]) == (
            text if serde is Named else [text]
        )
        values["messages"][0].content = "changed"
        values["messages"].pop()["a"].append(2)


def test_a_copy_of_the_saver_reads_with_its_own_serializer(store: Store):
    text = "word " * 100

    class Other(JsonPlusSerializer):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            found = super().loads_typed(data)
            return "other" if found == text else found

    saver = HoldfastSaver(store)
    made = {
        **empty_checkpoint(),
        "channel_values": {"text": text},
        "channel_versions": {"text": 1},
    }
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    saver.put(at, made, {}, made["channel_versions"])  # type: ignore[arg-type]
    other = copy.copy(saver)  # as LangGraph makes them, with a list of classes that may be read
    other.serde = Other()
    for one, wanted in ((saver, text), (other, "other")):
        for _ in range(4):
            found = one.get_tuple(at)
            assert found is not None
            assert found.checkpoint["channel_values"]["text"] == wanted
