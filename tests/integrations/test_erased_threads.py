"""What a saver has in its memory is never taken for what is stored: threads that others erase, cut or replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from pydantic import BaseModel, PrivateAttr

import holdfast
from holdfast import Message, Retention, Store
from holdfast.errors import Damaged
from holdfast.integrations.checkpoint_values import copied
from holdfast.integrations.langgraph import HoldfastSaver
from tests.integrations.killed import checkpoint, config

TURNS = 5


def fill(saver: HoldfastSaver, thread: str, turns: range) -> Any:
    at = config(thread, checkpoint(turns[0] - 1)["id"] if turns[0] else None)
    for turn in turns:
        made = checkpoint(turn)
        at = saver.put(at, made, {"step": turn}, made["channel_versions"])
    return at


def erase(store: Store) -> None:
    HoldfastSaver(store).delete_thread("t")


def empty(store: Store) -> None:
    store.rewrite("t", [])


@pytest.mark.parametrize("gone", [erase, empty])
def test_a_thread_that_another_erases_while_a_task_runs_is_gone_and_goes_on_whole(
    store: Store, gone: Callable[[Store], None]
):
    saver = HoldfastSaver(store)
    at = fill(saver, "t", range(TURNS))
    assert saver.get_tuple(at) is not None
    gone(store)  # by another process, which this one cannot know
    saver.put_writes(at, [("messages", "more")], "task")
    for one in (saver, HoldfastSaver(store)):
        assert one.get_tuple(config("t")) is None
        assert one.get_tuple(at) is None
    fill(saver, "t", range(TURNS, TURNS + 1))
    for one in (saver, HoldfastSaver(store)):
        [found] = one.list(config("t"))
        assert found.checkpoint["channel_values"] == checkpoint(TURNS)["channel_values"]


def test_writes_of_two_processes_at_once_are_all_pending(store: Store):
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    at = fill(one, "t", range(2))
    other.get_tuple(at)
    for number in range(6):
        for saver in (one, other):
            saver.put_writes(at, [("messages", number)], f"task-{number}-{saver is one}")
    fill(one, "t", range(2, 3))
    for saver in (one, other, HoldfastSaver(store)):
        found = saver.get_tuple(at)
        assert found is not None
        assert len(found.pending_writes or ()) == 12


def test_the_retention_of_a_store_cuts_no_thread(disk_path: Path, monkeypatch: pytest.MonkeyPatch):
    with holdfast.connect(f"sqlite:///{disk_path}/m.db", retention=Retention(last=5)) as store:
        saver = HoldfastSaver(store)
        fill(saver, "t", range(TURNS))
        saver.put(config("u"), {**empty_checkpoint(), "id": "own"}, {"step": -1}, {})
        monkeypatch.setattr("holdfast.limits.BATCH_MESSAGES_MAX", 3)  # a copy of several appends
        saver.copy_thread("t", "u")
        monkeypatch.undo()
        monkeypatch.setattr("holdfast.integrations.checkpoint_steps.TRIES", 0)  # a crowded thread
        fill(saver, "t", range(TURNS, TURNS + 3))
        monkeypatch.undo()
        for thread, steps in (("t", range(TURNS + 2, -1, -1)), ("u", range(TURNS - 1, -2, -1))):
            found = list(HoldfastSaver(store).list(config(thread)))
            assert [one.metadata["step"] for one in found] == list(steps)


def test_a_part_that_is_not_the_one_that_was_put_is_damage_and_no_answer(store: Store):
    """A put that was held up for longer than `keys_kept_s` stands in another thread of that name."""
    fill(HoldfastSaver(store), "t", range(TURNS))
    kept, other = list(store.history("t")), HoldfastSaver(store)
    at = next(at for at, one in enumerate(kept) if "part" in one.extra["langgraph"])
    packed = ["json", "ImFub3RoZXIi"]
    kept[at] = Message("part", None, created_at=None, extra={"langgraph": {"part": packed}})
    store.rewrite("t", kept)
    with pytest.raises(Damaged):
        other.get_tuple(config("t"))


class Counter(BaseModel):
    """Of a user, in the state of a graph."""

    name: str
    _seen: list[str] = PrivateAttr(default_factory=list)


def test_what_a_reader_does_to_a_value_no_other_reader_sees():
    with pytest.raises(TypeError):  # it is read each time: nobody knows what is private to it
        copied(Counter(name="one"))
    message = AIMessage("hello", additional_kwargs={"seen": [1]})
    copied(message).additional_kwargs["seen"].append(2)
    assert message.additional_kwargs == {"seen": [1]}


def test_what_another_task_puts_while_a_thread_is_pruned_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    saver, real, added = HoldfastSaver(store), store.messages, iter(("late",))

    def put(name: str) -> None:
        side: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": name}}
        saver.put(side, {**empty_checkpoint(), "id": name}, {}, {})

    def adding(*args: Any) -> Any:
        for name in added:
            put(name)
        return real(*args)

    for number in range(40):  # more than are read together
        put(f"side-{number}")
    monkeypatch.setattr(store, "messages", adding)
    saver.prune(["t"])
    assert len(list(saver.list({"configurable": {"thread_id": "t"}}))) == 41
