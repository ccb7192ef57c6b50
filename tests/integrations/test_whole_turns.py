"""A crash between a tool call and its result leaves a session that every model takes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import agent_framework
import pytest
from agent_framework import Content
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from llama_index.core.llms import ChatMessage
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import holdfast
from holdfast import Durability, Message, Store, UsageError, turns
from holdfast.integrations.agent_framework import HoldfastHistoryProvider
from holdfast.integrations.langchain import HoldfastChatMessageHistory, whole_messages
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.llama_index import HoldfastChatStore
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.pydantic_ai import HoldfastMessageHistory
from holdfast.turns import INTERRUPTED
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


@pytest.mark.parametrize("turns", ["whole", "repaired"])
def test_a_call_that_langchain_could_not_read_is_left_out_unless_it_was_answered(
    store: Store, turns: Any
):
    """ChatOpenAI sends it as a call; other models are not sent it, and would refuse a result."""
    history = HoldfastChatMessageHistory("s", store, turns=turns)
    unread: Any = {
        "name": "look",
        "args": "{",
        "id": "c1",
        "error": None,
        "type": "invalid_tool_call",
    }
    said: list[BaseMessage] = [HumanMessage("look"), AIMessage("", invalid_tool_calls=[unread])]
    history.add_messages(said)
    assert [one.type for one in history.messages] == ["human"]
    assert whole_messages(said, turns) == said[:1]
    history.add_messages([ToolMessage("that was no JSON", tool_call_id="c1")])
    assert [one.type for one in history.messages] == ["human", "ai", "tool"]


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


class Asked(BaseChatModel):
    """Wants one look, and says no more; notes each history that it is handed."""

    handed: list[list[Any]]

    @property
    def _llm_type(self) -> str:
        return "asked"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.handed.append(convert_to_openai_messages(messages))
        looked = any(message.type in ("ai", "tool") for message in messages)
        call: Any = [] if looked else [{"name": "look", "args": {}, "id": "a"}]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=call))])


def own_graph(saver: HoldfastSaver, model: Asked, tool: Any) -> Any:
    def asks(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(whole_messages(state["messages"], "repaired"))]}

    plan: Any = StateGraph(MessagesState)
    plan.add_node("model", asks)
    plan.add_node("tools", ToolNode([tool]))
    plan.add_edge(START, "model")
    plan.add_edge("tools", "model")
    plan.add_conditional_edges("model", tools_condition)
    return plan.compile(checkpointer=saver)


def their_agent(saver: HoldfastSaver, model: Asked, tool: Any) -> Any:
    def hook(state: Any) -> dict[str, Any]:
        return {"llm_input_messages": whole_messages(state["messages"], "repaired")}

    return create_react_agent(model, [tool], pre_model_hook=hook, checkpointer=saver)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("built", [own_graph, their_agent])
@pytest.mark.parametrize("said", [None, "and now?"])
def test_a_graph_that_was_killed_in_a_tool_goes_on_with_whole_turns(
    sqlite_engine: SqliteEngine, built: Any, said: str | None
):
    """The tool runs again, or a new message follows the open call, which is in the state."""
    about: Any = {"configurable": {"thread_id": "t"}}

    def look() -> str:
        """Look into the tank."""
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "a squid"

    def ask(question: Any) -> list[list[Any]]:
        model = Asked(handed=[])
        with holdfast.connect(sqlite_engine.url, require=Durability.PROCESS) as store:
            graph = built(HoldfastSaver(store), model, look)
            graph.invoke(question, about, durability="sync")
        return model.handed

    dies = True
    assert in_a_child(lambda: print(ask({"messages": [("user", "look")]}))) == -signal.SIGKILL
    dies = False
    [handed] = ask(said and {"messages": [("user", said)]})
    assert tool_turns.refusal(handed) == ""
    roles = ["user", "assistant", "tool", *(["user"] if said else [])]
    assert [one["role"] for one in handed] == roles
    assert handed[2]["content"] == ("a squid" if said is None else INTERRUPTED)


def test_messages_that_need_one_another_are_left_out_in_one_go():
    """Each answers the call of the one before and makes one itself: the last has no answer."""
    chain = [
        Message(
            "assistant", None, extra={"tool_calls": [{"id": f"{n}"}], "tool_call_id": f"{n - 1}"}
        )
        for n in range(3000)
    ]
    begin = time.process_time()
    asked = Message("user", "look")
    assert turns.whole([asked, *chain]) == (asked,)
    assert time.process_time() - begin < 8  # a tenth of a second; each by itself took 40


def test_a_page_begins_with_no_result_whose_call_is_before_it(store: Store):
    call = Message("assistant", None, extra={"tool_calls": [CALL]})
    store.append("s", [call, RESULT, Message("user", "and now?")])
    assert [one.role for one in store.history("s", limit=2, turns="whole")] == ["user"]
    with pytest.raises(UsageError, match="all, whole or repaired"):
        store.history("s", turns="half")  # type: ignore[arg-type]
