"""A name is as good as new a while after all of it was erased: what a process remembers is not of the new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Message, Store
from holdfast.integrations.adk import HoldfastSessionService
from holdfast.integrations.langgraph import HoldfastSaver
from tests.contract.clocks import SqliteClock
from tests.integrations.killed import checkpoint, config

KEPT_S = 1000.0
TURNS = 5


@pytest.fixture
def clock(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteClock:
    monkeypatch.setattr("holdfast.backends.sqlite.writer.SWEEP_INTERVAL_S", 0.0)
    # The clock of the file is moved, not that of this process.
    monkeypatch.setattr("holdfast.integrations.checkpoint_steps.SURE_S", 0.0)
    return SqliteClock(disk_path, monkeypatch)


def opened(clock: SqliteClock) -> Store:
    return holdfast.connect(clock.url, keys_kept_s=KEPT_S)


def made_new(clock: SqliteClock, store: Store) -> None:
    """Let the time pass that a name is kept."""
    clock.move(KEPT_S * 1.1)
    for number in range(4):
        store.append("another", Message("user", str(number)))


def saying(word: str, turn: int) -> Any:
    made = checkpoint(turn)
    values = made["channel_values"]
    values["messages"] = [text.replace("word", word) for text in values["messages"]]
    return made


def fill(saver: HoldfastSaver, word: str, turns: range) -> None:
    at = config("t", checkpoint(turns[0] - 1)["id"] if turns[0] else None)
    for turn in turns:
        made = saying(word, turn)
        at = saver.put(at, made, {"step": turn}, made["channel_versions"])


def reads(saver: HoldfastSaver, thread: Any) -> None:
    found = saver.get_tuple(thread)
    assert found is not None
    assert found.checkpoint["channel_values"] == saying("new", TURNS - 1)["channel_values"]


def goes_on(saver: HoldfastSaver, thread: Any) -> None:
    fill(saver, "new", range(TURNS, TURNS + 1))
    found = saver.get_tuple(thread)
    assert found is not None
    assert found.checkpoint["channel_values"] == saying("new", TURNS)["channel_values"]


def writes(saver: HoldfastSaver, thread: Any) -> None:
    latest = config("t", checkpoint(TURNS - 1)["id"])
    saver.put_writes(latest, [("messages", "more")], "task")
    reads(saver, thread)


@pytest.mark.parametrize("first", [reads, goes_on, writes])
def test_nothing_of_an_erased_thread_comes_back_from_the_memory_of_another_process(
    clock: SqliteClock, first: Callable[[HoldfastSaver, Any], None]
):
    with opened(clock) as store, opened(clock) as other:
        saver = HoldfastSaver(store)
        saver.put_writes(config("t", checkpoint(0)["id"]), [("turn", 0)], "early")
        fill(saver, "new" if first is goes_on else "old", range(TURNS))
        for _ in range(3):
            assert saver.get_tuple(config("t")) is not None
        ended_at = store.stat("t").last
        HoldfastSaver(other).delete_thread("t")
        made_new(clock, other)
        fill(HoldfastSaver(other), "new", range(TURNS))
        HoldfastSaver(other).put_writes(config("t", checkpoint(4)["id"]), [("turn", 5)], "late")
        assert store.stat("t").last == ended_at  # the same numbers, another thread
        first(saver, config("t"))
        for one in HoldfastSaver(other).list(config("t")):
            turn = one.metadata["step"]
            assert one.checkpoint["channel_values"] == saying("new", turn)["channel_values"]


def test_a_session_of_adk_that_is_made_again_tells_its_user_what_it_says(clock: SqliteClock):
    async def story(service: HoldfastSessionService, store: Store) -> None:
        about: Any = {"app_name": "shop", "user_id": "42", "session_id": "main"}
        for told in ("old", "new"):
            await service.create_session(**about, state={"user:name": told})
            found = await service.get_session(**about)
            assert found is not None
            assert found.state == {"user:name": told}
            await service.delete_session(**about)
            made_new(clock, store)

    with opened(clock) as store:
        asyncio.run(story(HoldfastSessionService(store), store))
