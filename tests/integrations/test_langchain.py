"""Our store as LangChain's chat message history."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import holdfast
from holdfast import InvalidMessage, Message, Store, UsageError
from holdfast.integrations.langchain import HoldfastChatMessageHistory
from holdfast.verify.records import flip_one

EVERY_KIND: list[BaseMessage] = [
    SystemMessage("Be brief", id="s-1"),
    HumanMessage("What is this?", name="Xiao Li"),
    HumanMessage([{"type": "text", "text": "see"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]),
    AIMessage(
        "",
        id="run-1",
        tool_calls=[{"name": "look", "args": {"at": [1, None]}, "id": "call-1"}],
        invalid_tool_calls=[{"name": "x", "args": "{", "id": "call-2", "error": "cut short"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m", "logprobs": None},
        additional_kwargs={"refusal": None},
    ),
    ToolMessage("a squid 🦑", tool_call_id="call-1", artifact={"size": 0.1}, status="error"),
    ToolMessage("not JSON", tool_call_id="call-2"),  # some models are sent such a call: it needs a result
    FunctionMessage(content="1", name="count"),
    ChatMessage(content="Meanwhile", role="narrator"),
    AIMessageChunk(content="half"),
    RemoveMessage(id="run-1"),
]  # fmt: skip


def of_kind(messages: list[Any]) -> list[tuple[type, Any]]:
    return [(type(message), message) for message in messages]


def test_every_kind_of_message_comes_back_as_it_went_in(store: Store):
    history = HoldfastChatMessageHistory("s", store)
    history.add_messages(EVERY_KIND)
    assert of_kind(history.messages) == of_kind(EVERY_KIND)
    roles = [message.role for message in store.history("s")]
    assert roles[:5] == ["system", "user", "user", "assistant", "tool"]
    assert store.history("s")[0].id == "s-1"


def test_the_async_methods_do_the_same(awaited: Any):
    async def use(store: Any) -> None:
        history = HoldfastChatMessageHistory("s", store, limit=2)
        await history.aadd_messages(EVERY_KIND)
        assert of_kind(await history.aget_messages()) == of_kind(EVERY_KIND[-2:])
        await history.areplace_messages(EVERY_KIND[:1])
        assert await history.aget_messages() == EVERY_KIND[:1]
        await history.aclear()
        assert await history.aget_messages() == []

    awaited(use)


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
def test_a_conversation_goes_on_in_another_process_of_the_application(url: str):
    def chain(store: Store) -> RunnableWithMessageHistory:
        def answer(messages: list[BaseMessage]) -> AIMessage:
            return AIMessage(f"I have heard {len(messages)}, first {messages[0].content!r}")

        return RunnableWithMessageHistory(
            RunnableLambda(answer), lambda session_id: HoldfastChatMessageHistory(session_id, store)
        )

    about: Any = {"configurable": {"session_id": "user-42"}}
    with holdfast.connect(url) as store:
        chain(store).invoke([HumanMessage("I am Xiao Li")], about)
    with holdfast.connect(url) as store:
        said = chain(store).invoke([HumanMessage("Who am I?")], about)
        assert said.content == "I have heard 3, first 'I am Xiao Li'"
        assert len(store.history("user-42")) == 4


def test_a_key_adds_once(store: Store):
    history = HoldfastChatMessageHistory("s", store)
    for _ in range(2):
        history.add_messages([HumanMessage("a"), AIMessage("b")], key="request-7")
    assert len(history.messages) == 2


def test_ids_are_keys_only_for_who_asks(store: Store):
    turn = [HumanMessage("a", id="h-1"), AIMessage("b", id="a-1")]
    usual = HoldfastChatMessageHistory("usual", store)
    once = HoldfastChatMessageHistory("once", store, once_by_id=True)
    for history in (usual, once):
        history.add_messages(turn)
        history.clear()
        history.add_messages(turn)  # as who trims a history does
    assert (len(usual.messages), len(once.messages)) == (2, 0)


def test_messages_of_others_are_read(store: Store):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    store.append(
        "s",
        [
            Message("user", "hello", id="m-1"),
            Message("assistant", None, extra={"tool_calls": [call]}),
            Message("tool", "1", extra={"tool_call_id": "c"}),
            Message("narrator", "Meanwhile"),
        ],
    )
    found = HoldfastChatMessageHistory("s", store).messages
    assert [type(each) for each in found] == [HumanMessage, AIMessage, ToolMessage, ChatMessage]
    assert (found[0].content, found[0].id) == ("hello", "m-1")
    assert found[1].tool_calls[0]["args"] == {"a": 1}  # type: ignore[attr-defined]
    assert found[3].role == "narrator"  # type: ignore[attr-defined]


def test_a_damaged_record_is_named_and_hides_nothing_else(
    store: Store, url: str, caplog: pytest.LogCaptureFixture
):
    history = HoldfastChatMessageHistory("s", store)
    history.add_messages([HumanMessage(text) for text in "abc"])
    flip_one(url, "default", "s")
    found: Any = history.messages
    assert [message.content for message in found] == ["a", "c"]
    assert [damage.seq for damage in found.damaged] == [2]
    assert "record 2 cannot be read" in caplog.text


def test_what_could_not_come_back_is_refused_whole(store: Store):
    history = HoldfastChatMessageHistory("s", store)
    with pytest.raises(InvalidMessage, match="artifact"):
        history.add_messages([HumanMessage("a"), ToolMessage("b", tool_call_id="c", artifact={1})])

    class Own(BaseMessage):
        type: str = "own"

    with pytest.raises(InvalidMessage, match="no kind of message"):
        history.add_messages([HumanMessage("a"), Own(content="b")])
    assert history.messages == []


def test_nothing_is_sent_where_nothing_was_given(store: Store):
    HoldfastChatMessageHistory("s", store).add_messages([])
    assert store.stat("s").last == 0


def test_a_store_that_has_to_be_awaited_says_so(awaited: Any):
    async def use(store: Any) -> None:
        history = HoldfastChatMessageHistory("s", store)
        if not isinstance(store, Store):
            with pytest.raises(UsageError, match="has to be awaited"):
                _ = history.messages
            with pytest.raises(UsageError, match="nothing was sent"):
                history.add_messages([HumanMessage("a")])
        assert await history.aget_messages() == []

    awaited(use)
