"""A crash between a tool call and its result leaves a session that every model takes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import agent_framework
import pytest
from agent_framework import Content
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langgraph.graph import END, START, MessagesState, StateGraph
from llama_index.core.llms import ChatMessage
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import holdfast
from holdfast import Durability, Message, Store, UsageError
from holdfast.integrations.agent_framework import HoldfastHistoryProvider
from holdfast.integrations.langchain import HoldfastChatMessageHistory
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.llama_index import HoldfastChatStore
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.pydantic_ai import HoldfastMessageHistory
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.workload import tool_turns
from tests.integrations.killed import in_a_child

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


def chain_writes(store: Store) -> Callable[[str], None]:
    history = HoldfastChatMessageHistory("s", store)
    calls: Any = [{"name": "look", "args": {}, "id": name} for name in ("a", "b")]
    said: dict[str, BaseMessage] = {
        "ask": HumanMessage("look"), "call": AIMessage("", tool_calls=calls),
        "a": ToolMessage("1", tool_call_id="a"), "b": ToolMessage("2", tool_call_id="b"),
    }  # fmt: skip
    return lambda part: history.add_messages([said[part]])


def chain_reads(store: Store, turns: Any) -> list[dict[str, Any]]:
    return convert_to_openai_messages(HoldfastChatMessageHistory("s", store, turns=turns).messages)


def index_writes(store: Store) -> Callable[[str], None]:
    calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
             for name in ("a", "b")]  # fmt: skip
    said = {
        "ask": ChatMessage(role="user", content="look"),
        "call": ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": calls}),
        "a": ChatMessage(role="tool", content="1", additional_kwargs={"tool_call_id": "a"}),
        "b": ChatMessage(role="tool", content="2", additional_kwargs={"tool_call_id": "b"}),
    }
    return lambda part: HoldfastChatStore(store).add_message("s", said[part])


def index_reads(store: Store, turns: Any) -> list[dict[str, Any]]:
    found = HoldfastChatStore(store, turns=turns).get_messages("s")
    return [{"role": one.role.value, **one.additional_kwargs} for one in found]


def agents_write(store: Store) -> Callable[[str], None]:
    calls = [{"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"}
             for name in ("a", "b")]  # fmt: skip
    outputs = {name: [{"type": "function_call_output", "call_id": name, "output": "1"}]
               for name in ("a", "b")}  # fmt: skip
    said: Any = {"ask": [{"role": "user", "content": "look"}], "call": calls, **outputs}
    return lambda part: asyncio.run(HoldfastSession("s", store).add_items(said[part]))


def agents_read(store: Store, turns: Any) -> list[dict[str, Any]]:
    """As messages: that API matches results by id, so each is put behind its call here."""
    items: Any = asyncio.run(HoldfastSession("s", store, turns=turns).get_items())
    outputs = [one["call_id"] for one in items if one.get("type") == "function_call_output"]
    shown: list[dict[str, Any]] = []
    for one in items:
        name = one.get("call_id")
        if one.get("type") == "function_call":
            shown.append({"role": "assistant", "tool_calls": [{"id": name}]})
            shown += [{"role": "tool", "tool_call_id": name}] * outputs.count(name)
        elif "role" in one:
            shown.append(one)
    called = {call["id"] for one in shown for call in one.get("tool_calls", ())}
    return shown + [{"role": "tool", "tool_call_id": one} for one in outputs if one not in called]


def microsoft_writes(store: Store) -> Callable[[str], None]:
    said = {
        "ask": agent_framework.Message("user", ["look"]),
        "call": agent_framework.Message(
            "assistant",
            [Content.from_function_call(call_id=name, name="look") for name in ("a", "b")],
        ),
        **{
            name: agent_framework.Message(
                "tool", [Content.from_function_result(call_id=name, result="1")]
            )
            for name in ("a", "b")
        },
    }
    history = HoldfastHistoryProvider(store)
    return lambda part: asyncio.run(history.save_messages("s", [said[part]]))


def microsoft_reads(store: Store, turns: Any) -> list[dict[str, Any]]:
    found = asyncio.run(HoldfastHistoryProvider(store, turns=turns).get_messages("s"))
    return [as_openai(one.role, "function_call", "function_result", one.contents) for one in found]


def as_openai(role: str, call: str, result: str, contents: Any) -> dict[str, Any]:
    """A message of one kind of parts, as the rule that models have is told."""
    kinds = [(one.type, one.call_id) for one in contents]
    if calls := [{"id": name} for kind, name in kinds if kind == call]:
        return {"role": role, "tool_calls": calls}
    answers = [name for kind, name in kinds if kind == result]
    return {"role": role, "tool_call_id": answers[0]} if answers else {"role": role}


def pydantic_writes(store: Store) -> Callable[[str], None]:
    calls = [ToolCallPart("look", {}, tool_call_id=name) for name in ("a", "b")]
    said: Any = {
        "ask": ModelRequest([UserPromptPart("look")]),
        "call": ModelResponse(calls),
        **{
            name: ModelRequest([ToolReturnPart("look", "1", tool_call_id=name)])
            for name in ("a", "b")
        },
    }

    def write(part: str) -> None:
        HoldfastMessageHistory("s", store).add([said[part]])

    return write


def pydantic_reads(store: Store, turns: Any) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for one in HoldfastMessageHistory("s", store, turns=turns).load():
        parts: Any = one.parts
        if isinstance(one, ModelResponse):
            calls = [{"id": part.tool_call_id} for part in parts]
            shown.append({"role": "assistant", "tool_calls": calls})
        elif isinstance(parts[0], ToolReturnPart):
            shown.append({"role": "tool", "tool_call_id": parts[0].tool_call_id})
        else:
            shown.append({"role": "user"})
    return shown


FRAMEWORKS: Any = {
    "agent-framework": (microsoft_writes, microsoft_reads),
    "pydantic-ai": (pydantic_writes, pydantic_reads),
    "langchain": (chain_writes, chain_reads),
    "llama-index": (index_writes, index_reads),
    "openai-agents": (agents_write, agents_read),
}
PARTS = ("call", "a", "b")


@pytest.mark.parametrize("turns", ["whole", "repaired"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_class_hands_out_an_orphan_however_a_turn_was_cut_and_went_on(
    store: Store, framework: str, turns: str
):
    """Every order of a call, its two results and a message of somebody; each part may be missing."""
    writes, reads = FRAMEWORKS[framework]
    for parts in (one for n in (1, 2, 3, 4) for one in permutations(("ask", *PARTS), n)):
        store.forget("s")
        write = writes(store)
        for at, part in enumerate(parts):
            write(part)
            found = reads(store, turns)
            assert tool_turns.refusal(found) == "", (parts[: at + 1], found)
            said = sum(one["role"] == "user" for one in found)
            assert said == ("ask" in parts[: at + 1]), (parts[: at + 1], found)
        if parts == ("ask", *PARTS):
            assert len(reads(store, turns)) == (4 if framework != "openai-agents" else 5)


def test_a_graph_that_was_killed_in_a_tool_goes_on_with_a_whole_turn(sqlite_engine: SqliteEngine):
    """A checkpoint comes back as it was, with its open call; its next step is the tool."""
    handed: list[list[Any]] = []
    about: Any = {"configurable": {"thread_id": "t"}}

    def graph(store: Store, tool: Callable[[], str]) -> Any:
        def model(state: Any) -> dict[str, Any]:
            handed.append(convert_to_openai_messages(state["messages"]))
            answered = isinstance(state["messages"][-1], ToolMessage)
            call: Any = [] if answered else [{"name": "look", "args": {}, "id": "a"}]
            return {"messages": [AIMessage("", tool_calls=call)]}

        plan: Any = StateGraph(MessagesState)
        plan.add_node("model", model)
        plan.add_node("tool", lambda _: {"messages": [ToolMessage(tool(), tool_call_id="a")]})
        plan.add_edge(START, "model")
        plan.add_edge("tool", "model")
        plan.add_conditional_edges(
            "model", lambda state: "tool" if state["messages"][-1].tool_calls else END
        )
        return plan.compile(checkpointer=HoldfastSaver(store))

    def dies() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def ask() -> None:
        store = holdfast.connect(sqlite_engine.url, require=Durability.PROCESS)
        graph(store, dies).invoke({"messages": [("user", "look")]}, about, durability="sync")

    assert in_a_child(ask) == -signal.SIGKILL
    with holdfast.connect(sqlite_engine.url, require=Durability.PROCESS) as store:
        graph(store, lambda: "a squid").invoke(None, about)
    assert [[one["role"] for one in each] for each in handed] == [["user", "assistant", "tool"]]
    assert tool_turns.refusal(handed[0]) == ""


def test_a_page_begins_with_no_result_whose_call_is_before_it(store: Store):
    call = Message("assistant", None, extra={"tool_calls": [CALL]})
    store.append("s", [call, RESULT, Message("user", "and now?")])
    assert [one.role for one in store.history("s", limit=2, turns="whole")] == ["user"]
    with pytest.raises(UsageError, match="all, whole or repaired"):
        store.history("s", turns="half")  # type: ignore[arg-type]
