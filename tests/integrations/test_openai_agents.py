"""Our store as a session of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.memory import Session
from openai import AsyncOpenAI

import holdfast
from holdfast import Damaged, InvalidMessage, Message, Store
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.verify.records import flip_one
from tests.integrations.model import answering

EVERY_KIND: list[Any] = [
    {"role": "user", "content": "What is in it?"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:…", "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c", "output": "a squid 🦑"},
    {"type": "computer_call_output", "call_id": "d", "output": {"type": "computer_screenshot"}},
    {"type": "item_reference", "id": "msg_0"},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "A squid", "annotations": []}]},
    {"role": "assistant", "content": "x", "langchain": "a field of that name"},
]  # fmt: skip


def test_every_kind_of_item_comes_back_as_it_went_in(awaited: Any):
    async def use(store: Any) -> None:
        session = HoldfastSession("s", store, turns="all")
        assert isinstance(session, Session)
        await session.add_items(EVERY_KIND)
        assert await session.get_items() == EVERY_KIND
        assert await session.get_items(2) == EVERY_KIND[-2:]
        assert await session.get_items(0) == []
        assert await session.pop_item() == EVERY_KIND[-1]
        assert await session.get_items() == EVERY_KIND[:-1]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None

    awaited(use)


def test_what_a_tool_said_can_be_found_by_other_readers(store: Store):
    asyncio.run(HoldfastSession("s", store).add_items(EVERY_KIND[3:5]))
    found = [(message.role, message.content) for message in store.history("s")]
    assert found == [("assistant", None), ("tool", "a squid 🦑")]


def test_an_agent_remembers_after_a_restart(url: str):
    @function_tool
    def weather(place: str) -> str:
        """The weather."""
        return f"rain in {place}"

    async def ask(base_url: str, text: str) -> Any:
        client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
        agent = Agent("guide", model=OpenAIChatCompletionsModel("m", client), tools=[weather])
        with holdfast.connect(url) as store:
            try:
                return await Runner.run(agent, text, session=HoldfastSession("user-42", store))
            finally:
                await client.close()

    set_tracing_disabled(disabled=True)
    calls = [
        {"tool": "weather", "arguments": {"place": "Bergen"}},
        "It rains",
        "You asked for Bergen",
    ]
    with answering(calls) as (base_url, requests):
        assert asyncio.run(ask(base_url, "Weather in Bergen?")).final_output == "It rains"
        assert asyncio.run(ask(base_url, "What did I ask?")).final_output == calls[2]
    heard = [message["role"] for message in requests[2]["messages"]]
    assert heard == ["user", "assistant", "tool", "assistant", "user"]


def test_items_that_are_added_while_another_is_popped_stay(store: Store):
    async def work() -> list[Any]:
        session = HoldfastSession("s", store)
        await session.add_items([{"role": "user", "content": str(n)} for n in range(4)])
        popped = await asyncio.gather(
            session.pop_item(),
            session.add_items([{"role": "user", "content": "new"}]),
            session.pop_item(),
        )
        return [popped[0], popped[2], *await session.get_items()]

    found = asyncio.run(work())
    assert sorted(item["content"] for item in found) == ["0", "1", "2", "3", "new"]


def test_a_session_with_damage_shows_the_rest_and_is_not_popped(store: Store, url: str):
    async def work() -> None:
        session = HoldfastSession("s", store)
        await session.add_items([{"role": "user", "content": text} for text in "abc"])
        flip_one(url, "default", "s")
        found: Any = await session.get_items()
        assert [item["content"] for item in found] == ["a", "c"]
        assert [damage.seq for damage in found.damaged] == [2]
        with pytest.raises(Damaged, match="would erase"):
            await session.pop_item()

    asyncio.run(work())


def test_ids_are_keys_only_for_who_asks(store: Store):
    async def twice(session: HoldfastSession) -> int:
        for _ in range(2):
            await session.add_items(EVERY_KIND[3:5])
        return len(await session.get_items())

    assert asyncio.run(twice(HoldfastSession("usual", store))) == 4
    assert asyncio.run(twice(HoldfastSession("once", store, once_by_id=True))) == 2


def test_settings_may_be_a_dictionary(store: Store):
    session = HoldfastSession("s", store, session_settings={"limit": 1})
    asyncio.run(session.add_items([{"role": "user", "content": text} for text in "ab"]))
    assert asyncio.run(session.get_items()) == [{"role": "user", "content": "b"}]
    with pytest.raises(TypeError):
        HoldfastSession("s", store, session_settings={"limitt": 1})


def test_messages_of_others_are_read(store: Store):
    store.append("s", Message("user", "hello", extra={"name": "Xiao Li", "langchain": {}}))
    found = asyncio.run(HoldfastSession("s", store).get_items())
    assert found == [{"role": "user", "content": "hello", "name": "Xiao Li"}]


def test_an_item_that_could_not_come_back_is_refused_with_all_of_its_batch(store: Store):
    session = HoldfastSession("s", store)
    wrong: Any = [{"role": "user", "content": "a"}, {"type": "x", "output": {1, 2}}]
    with pytest.raises(InvalidMessage):
        asyncio.run(session.add_items(wrong))
    assert asyncio.run(session.get_items()) == []
