"""Our store as a history provider of Microsoft's agent-framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

import holdfast
from holdfast import InvalidMessage, Store
from holdfast.integrations.agent_framework import HoldfastHistoryProvider
from holdfast.verify.records import flip_one

CALL = Content.from_function_call(call_id="c", name="look", arguments={"at": [1, None]})
RESULT = Content.from_function_result(call_id="c", result="a squid 🦑")
EVERY_KIND = [
    Message("system", ["Be brief"]),
    Message("user", ["What is this?"], author_name="Xiao Li", message_id="m-1"),
    Message("user", [Content.from_data(b"\x89PNG\0", media_type="image/png"), "see"]),
    Message("assistant", [Content.from_text_reasoning(text="hm"), CALL]),
    Message("tool", [RESULT]),
    Message("assistant", ["A squid"], additional_properties={"_excluded": True}),
    Message("assistant", [""]),
    Message("assistant", []),
]


def forms(messages: Any) -> list[dict[str, Any]]:
    return [one.to_dict() for one in messages]


def test_every_kind_of_message_comes_back_as_it_went_in(awaited: Any):
    async def use(store: Any) -> None:
        history = HoldfastHistoryProvider(store, turns="all")
        await history.save_messages("s", EVERY_KIND)
        assert forms(await history.get_messages("s")) == forms(EVERY_KIND)
        quiet = HoldfastHistoryProvider(store, skip_excluded=True)
        assert "A squid" not in [one.text for one in await quiet.get_messages("s")]
        await history.save_messages(None, EVERY_KIND[:1])
        assert len(await history.get_messages(None)) == 1
        await history.clear("s")
        assert await history.get_messages("s") == []

    awaited(use)


class Counts(BaseChatClient[Any]):
    """A model that says how many messages it was handed."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", [f"heard {len(messages)}"])])

        return answer()


def test_an_agent_remembers_after_a_restart(url: str):
    async def ask(text: str) -> str:
        async with await holdfast.connect_async(url) as store:
            memory = HoldfastHistoryProvider(store)
            agent: Any = Agent(client=Counts(), context_providers=[memory])
            answer = await agent.run(text, session=AgentSession(session_id="user-42"))
            return str(answer.text)

    assert asyncio.run(ask("Hello")) == "heard 1"
    assert asyncio.run(ask("Hello")) == "heard 3"


@tool(approval_mode="always_require")
def look() -> str:
    """Look at it."""
    return "a squid"


class Looks(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A model that calls a tool until it has a result; it refuses what models refuse."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        contents = [content for one in messages for content in one.contents]
        calls = [one.call_id for one in contents if one.type == "function_call"]
        results = [one.call_id for one in contents if one.type == "function_result"]
        assert calls == results, "a call without its result, or a result without its call"
        call = Content.from_function_call(call_id="c", name="look", arguments="{}")

        async def answer() -> ChatResponse[Any]:
            said: Any = "done" if results or messages[-1].text == "never mind" else call
            return ChatResponse(messages=[Message("assistant", [said])])

        return answer()


@pytest.mark.parametrize("approved", [True, False, None])
def test_a_call_that_waits_for_a_user_is_shown_to_the_run_that_brings_the_answer(
    url: str, approved: bool | None
):
    """Approved, refused, or never answered because the user says something else."""

    async def ask(said: Any) -> Any:
        async with await holdfast.connect_async(url) as store:
            memory = HoldfastHistoryProvider(store)
            agent: Any = Agent(client=Looks(), tools=[look], context_providers=[memory])
            return await agent.run(said, session=session)

    session = AgentSession(session_id="user-42")  # it knows which approval is waited for
    (request,) = asyncio.run(ask("look")).user_input_requests
    said: Any = "never mind"
    if approved is not None:
        said = Message("user", [request.to_function_approval_response(approved=approved)])
    assert asyncio.run(ask(said)).text == "done"
    assert asyncio.run(ask("never mind")).text == "done"


def test_a_transcript_that_is_sent_again_is_not_stored_again(store: Store):
    said = [Message("user", ["a"]), Message("assistant", ["b"])]
    more = [Message("user", ["c"]), Message("assistant", ["d"])]

    async def work() -> list[str]:
        history = HoldfastHistoryProvider(store)
        await history.save_messages("s", said)
        await history.save_messages("s", said + more)  # all of it
        await history.save_messages("s", [*more, Message("user", ["e"])])  # its end
        await history.save_messages("s", [Message("user", ["e"])])  # somebody says it twice
        await history.save_messages("s", said)  # and what is not the end is new
        return [one.text for one in await history.get_messages("s")]

    assert asyncio.run(work()) == ["a", "b", "c", "d", "e", "e", "a", "b"]


class Agrees(BaseChatClient[Any]):
    """A model that always says the same, and gives its messages no ids."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        del messages

        async def answer() -> ChatResponse[Any]:
            return ChatResponse(messages=[Message("assistant", ["Done."])])

        return answer()


def test_a_turn_that_is_the_same_as_the_last_one_is_kept(store: Store):
    """What a model has just said is new, whatever it says; only its input may be a repetition."""
    history = HoldfastHistoryProvider(store)

    async def work() -> list[str]:
        agent: Any = Agent(client=Agrees(), context_providers=[history])
        session = AgentSession(session_id="s")
        for _ in range(3):
            await agent.run("Next", session=session)
        said = await history.get_messages("s")
        await agent.run([*said, Message("user", ["Last"])], session=session)  # a whole transcript
        return [one.text for one in await history.get_messages("s")]

    assert asyncio.run(work()) == ["Next", "Done."] * 3 + ["Last", "Done."]


def test_runs_that_end_at_the_same_time_are_all_kept_whole(sqlite_engine: Any):
    """More of them than tries: each turn is there once, and no other stands inside it."""

    async def work() -> list[str]:
        async with await holdfast.connect_async(
            sqlite_engine.url, require=holdfast.Durability.PROCESS
        ) as store:
            history = HoldfastHistoryProvider(store)
            turns = [
                [Message("user", [f"q{n}"]), Message("assistant", [f"a{n}"])] for n in range(24)
            ]
            await asyncio.gather(*(history.save_messages("s", turn) for turn in turns))
            return [one.text for one in await history.get_messages("s")]

    found = asyncio.run(work())
    assert sorted(found) == sorted(f"{who}{n}" for n in range(24) for who in "qa")
    assert all(found[at + 1] == f"a{found[at][1:]}" for at in range(0, len(found), 2))


def test_a_damaged_record_is_named_and_hides_nothing_else(store: Store, url: str):
    history = HoldfastHistoryProvider(store)
    asyncio.run(history.save_messages("s", [Message("user", [text]) for text in "abc"]))
    flip_one(url, "default", "s")
    found: Any = asyncio.run(history.get_messages("s"))
    assert [one.text for one in found] == ["a", "c"]
    assert [damage.seq for damage in found.damaged] == [2]


def test_messages_of_others_are_read(store: Store):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    store.append(
        "s",
        [
            holdfast.Message("user", [{"type": "text", "text": "see"}]),
            holdfast.Message("assistant", None, extra={"tool_calls": [call]}),
            holdfast.Message("tool", "a squid", extra={"tool_call_id": "c"}),
            holdfast.Message("user", [{"type": "image_url", "image_url": {"url": "x"}}]),
        ],
    )
    found: Any = asyncio.run(HoldfastHistoryProvider(store).get_messages("s"))
    kinds = [[content.type for content in one.contents] for one in found]
    assert kinds == [["text"], ["function_call"], ["function_result"]]
    assert [damage.seq for damage in found.damaged] == [4]


def test_what_could_not_come_back_is_refused_with_all_of_its_batch(store: Store):
    history = HoldfastHistoryProvider(store)
    wrong = Message("user", ["x"], additional_properties={"at": float("nan")})
    with pytest.raises(InvalidMessage):
        asyncio.run(history.save_messages("s", [Message("user", ["a"]), wrong]))
    assert asyncio.run(history.get_messages("s")) == []
