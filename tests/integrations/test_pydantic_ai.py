"""Our store as the message history of pydantic-ai."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

import holdfast
from holdfast import Conflict, InvalidMessage, Message, Store, UsageError
from holdfast.integrations.pydantic_ai import HoldfastMessageHistory
from holdfast.verify.records import flip_one

CALL = ToolCallPart("look", {"at": [1, None]}, tool_call_id="c")
EVERY_KIND: list[ModelMessage] = [
    ModelRequest([SystemPromptPart("Be brief"), UserPromptPart("What is this?")]),
    ModelRequest([UserPromptPart(["see", BinaryContent(b"\x89PNG\0", media_type="image/png")])]),
    ModelResponse([ThinkingPart("hm", signature="x"), TextPart("I look"), CALL]),
    ModelRequest([ToolReturnPart("look", {"it": "a squid 🦑"}, tool_call_id="c")]),
    ModelResponse([TextPart("A squid")], model_name="m"),
    ModelResponse([TextPart("")]),
    ModelResponse([]),
]


def forms(messages: Any) -> Any:
    return ModelMessagesTypeAdapter.dump_python([*messages], mode="json")


def test_every_kind_of_message_comes_back_as_it_went_in(store: Store):
    history = HoldfastMessageHistory("s", store, turns="all")
    history.add(EVERY_KIND)
    assert forms(history.load()) == forms(EVERY_KIND)
    assert forms(history.load(2)) == forms(EVERY_KIND[-2:])
    assert [one.content for one in store.history("s")][4:6] == ["A squid", ""]
    history.clear()
    assert history.load() == []


def test_the_async_methods_do_the_same(awaited: Any):
    async def use(store: Any) -> None:
        history = HoldfastMessageHistory("s", store)
        ack = await history.aadd(EVERY_KIND[:1], key="run-1")
        assert ack is not None
        await history.aadd(EVERY_KIND[:1], key="run-1")
        assert len(await history.aload()) == 1
        await history.aadd(EVERY_KIND[4:5])
        with pytest.raises(Conflict):
            await history.areplace(EVERY_KIND[:1], expect=ack.last)
        await history.areplace(EVERY_KIND[4:5])
        assert forms(await history.aload()) == forms(EVERY_KIND[4:5])
        await history.aclear()
        assert await history.aload() == []
        assert await history.aadd([]) is None
        if not isinstance(store, Store):
            with pytest.raises(UsageError, match="has to be awaited"):
                history.load()

    awaited(use)


@pytest.fixture
def own_loop() -> Iterator[None]:
    """`run_sync` takes the loop of this thread, or makes one that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.usefixtures("own_loop")
def test_an_agent_remembers_after_a_restart(url: str):
    handed: list[int] = []

    def model(messages: Any, _: Any) -> ModelResponse:
        handed.append(len(messages))
        first = len(messages) == 1
        return ModelResponse([ToolCallPart("look", {}) if first else TextPart("a squid")])

    def look() -> str:
        return "a squid"

    agent = Agent(FunctionModel(model), tools=[look])
    for text in ("What is this?", "And now?"):
        with holdfast.connect(url) as store:
            history = HoldfastMessageHistory("user-42", store)
            result = agent.run_sync(text, message_history=history.load())
            history.add(result.new_messages(), key=result.run_id)
            assert forms(history.load()) == forms(result.all_messages())
    assert handed == [1, 3, 5]


def test_a_damaged_record_is_named_and_hides_nothing_else(store: Store, url: str):
    history = HoldfastMessageHistory("s", store)
    history.add([ModelRequest([UserPromptPart(text)]) for text in "abc"])
    flip_one(url, "default", "s")
    found: Any = history.load()
    assert [one.parts[0].content for one in found] == ["a", "c"]
    assert [damage.seq for damage in found.damaged] == [2]


def test_messages_of_others_are_read(store: Store):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    store.append(
        "s",
        [
            Message("system", "Be brief"),
            Message("user", [{"type": "text", "text": "see"}]),
            Message("assistant", None, extra={"tool_calls": [call]}),
            Message("tool", "a squid", extra={"tool_call_id": "c"}),
            Message("user", [{"type": "image_url", "image_url": {"url": "x"}}]),
        ],
    )
    found: Any = HoldfastMessageHistory("s", store).load()
    kinds = [[part.part_kind for part in one.parts] for one in found]
    assert kinds == [["system-prompt"], ["user-prompt"], ["tool-call"], ["tool-return"]]
    assert [damage.seq for damage in found.damaged] == [5]


def test_what_json_has_no_word_for_is_refused_with_all_of_its_batch(store: Store):
    history = HoldfastMessageHistory("s", store)
    odd = ModelRequest([ToolReturnPart("look", object(), tool_call_id="c")])
    with pytest.raises(InvalidMessage, match="nothing was written"):
        history.add([ModelRequest([UserPromptPart("Hello")]), odd])
    assert history.load() == []
