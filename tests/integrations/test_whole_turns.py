"""A crash between a tool call and its result leaves a session that every model takes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

import holdfast
from holdfast import Durability, Message, Store, UsageError
from holdfast.integrations.langchain import HoldfastChatMessageHistory
from holdfast.integrations.llama_index import HoldfastChatStore
from holdfast.integrations.openai_agents import HoldfastSession

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
KILLED = f"""
import os, signal, sys, holdfast
store = holdfast.connect(sys.argv[1], require=holdfast.Durability.PROCESS)
store.append("s", [holdfast.Message("user", "look"),
                   holdfast.Message("assistant", None, extra={{"tool_calls": [{CALL}]}})])
os.kill(os.getpid(), signal.SIGKILL)  # it was about to append the result
"""
RESULT = Message("tool", "a squid", extra={"tool_call_id": "c1"})


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def cut_off(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A session whose writer was killed between a call and its result."""
    url = request.getfixturevalue(f"{request.param}_engine").url
    done = subprocess.run([sys.executable, "-c", KILLED, url], timeout=60)
    assert done.returncode == -signal.SIGKILL
    with holdfast.connect(url, require=Durability.PROCESS) as store:
        yield store


def test_a_call_whose_writer_was_killed_is_left_out_or_closed(cut_off: Store):
    store = cut_off
    assert [one.role for one in store.history("s")] == ["user", "assistant"]
    assert [one.role for one in store.history("s", turns="whole")] == ["user"]
    closed = store.history("s", turns="repaired")
    assert [one.role for one in closed] == ["user", "assistant", "tool"]
    assert closed[2].extra["tool_call_id"] == "c1"
    assert closed.last == 2
    assert store.stat("s", open_calls=True).open_calls == 1
    assert store.stat("s").open_calls is None
    assert store.stat("s").count == 2  # what closed it is not stored
    assert [one.role for one in store.context("s", "look", tokens=500).messages] == ["user"]
    store.append("s", RESULT)  # the retry of the killed step
    assert len(store.history("s", turns="whole")) == 3
    assert store.stat("s", open_calls=True).open_calls == 0
    assert [one.role for one in store.context("s", "look", tokens=500).turns][-1] == "tool"


def test_no_framework_is_handed_a_call_without_result(store: Store):
    store.append(
        "s", [Message("user", "look"), Message("assistant", "", extra={"tool_calls": [CALL]})]
    )

    def roles() -> list[list[str]]:
        chain = HoldfastChatMessageHistory("s", store).messages
        items: Any = asyncio.run(HoldfastSession("s", store).get_items())
        index = HoldfastChatStore(store).get_messages("s")
        return [
            [one.type for one in chain],
            [one["role"] for one in items],
            [one.role.value for one in index],
        ]

    assert roles() == [["human"], ["user"], ["user"]]
    shown: list[Any] = HoldfastChatMessageHistory("s", store, turns="repaired").messages
    assert [one.type for one in shown] == ["human", "ai", "tool"]
    assert shown[2].tool_call_id == "c1"
    store.append("s", RESULT)
    assert roles()[0] == ["human", "ai", "tool"]


def test_what_a_framework_wrote_itself_is_closed_in_its_own_form(store: Store):
    history = HoldfastChatMessageHistory("chain", store, turns="repaired")
    call: Any = {"name": "look", "args": {}, "id": "c1"}
    history.add_messages([AIMessage("", tool_calls=[call])])
    [_, closed] = history.messages
    assert isinstance(closed, ToolMessage)
    assert (closed.tool_call_id, closed.status) == ("c1", "error")

    async def agents() -> list[Any]:
        session = HoldfastSession("agents", store, turns="repaired")
        asked: Any = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        await session.add_items([asked])
        return list(await session.get_items())

    [_, output] = asyncio.run(agents())
    assert (output["type"], output["call_id"]) == ("function_call_output", "c1")


def test_a_page_begins_with_no_result_whose_call_is_before_it(store: Store):
    call = Message("assistant", None, extra={"tool_calls": [CALL]})
    store.append("s", [call, RESULT, Message("user", "and now?")])
    assert [one.role for one in store.history("s", limit=2, turns="whole")] == ["user"]
    with pytest.raises(UsageError, match="all, whole or repaired"):
        store.history("s", turns="half")  # type: ignore[arg-type]
