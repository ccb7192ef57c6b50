"""A session of the OpenAI Agents SDK that shortens itself while others write to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from agents.memory import is_openai_responses_compaction_aware_session
from agents.memory.openai_responses_compaction_session import OpenAIResponsesCompactionSession
from openai import AsyncOpenAI

import holdfast
from holdfast import Durability
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.openai_compaction import HoldfastCompactionSession

SHORT: Any = {"type": "compaction", "id": "cmp_1", "encrypted_content": "short"}
ANSWER: list[Any] = [
    {"type": "message", "role": "assistant", "id": "msg_9", "content": [], "status": "completed"},
    {**SHORT, "created_by": "server"},
]


def said(role: str, text: str) -> Any:
    return {"role": role, "content": text}


@contextlib.asynccontextmanager
async def model(
    meanwhile: Callable[[], Awaitable[None]],
    sent: list[Any] | None = None,
    output: Sequence[Any] = ANSWER,
) -> AsyncIterator[AsyncOpenAI]:
    """The client of a paid model that takes its time: `meanwhile` happens before it answers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("post /v1/responses/compact ")
        [size] = re.findall(r"content-length: (\d+)", head)
        asked = json.loads(await reader.readexactly(int(size)))
        if sent is not None:
            sent.append(asked)
        await meanwhile()
        made = {"id": "r", "created_at": 0, "object": "response.compaction", "output": output}
        body = json.dumps(made).encode()
        fields = (
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
        )
        writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
            yield client


async def nothing() -> None:
    """Nobody else is there."""


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def engine_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_engine").url
    return url


def test_what_another_client_adds_while_a_session_is_shortened_stays(engine_url: str):
    """Also what comes between the look at the session and the write, more than once."""

    async def work() -> None:
        opening = holdfast.connect_async(engine_url, require=Durability.PROCESS)
        async with (
            await opening as store,
            await holdfast.connect_async(engine_url, require=Durability.PROCESS) as another,
            contextlib.AsyncExitStack() as stack,
        ):
            other = HoldfastSession("s", another)
            added: list[Any] = []

            async def add() -> None:
                added.append(said("user", f"meanwhile {len(added)}"))
                await other.add_items(added[-1:])

            client = await stack.enter_async_context(model(add))
            session = HoldfastCompactionSession("s", store, client=client)
            await session.add_items([said("user", "a"), said("assistant", "b")])
            rewrite, late = store.rewrite, [1, 2]

            async def rewriting(*args: Any, **more: Any) -> Any:
                if late:
                    late.pop()
                    await add()
                return await rewrite(*args, **more)

            setattr(store, "rewrite", rewriting)  # noqa: B010 - mypy minds the other way
            await session.run_compaction({"force": True})
            short = [{name: value for name, value in ANSWER[0].items() if name != "id"}, SHORT]
            assert len(added) == 3
            assert await session.get_items() == [*short, *added]

    asyncio.run(work())


def test_the_sdks_own_class_loses_it(store: Any):
    """The other half: this is what the class above is for."""

    async def work() -> None:
        inner = HoldfastSession("s", store)

        async def add() -> None:
            await HoldfastSession("s", store).add_items([said("user", "meanwhile")])

        async with model(add) as client:
            session = OpenAIResponsesCompactionSession("s", inner, client=client)
            await session.add_items([said("user", "a"), said("assistant", "b")])
            await session.run_compaction({"force": True})
        assert said("user", "meanwhile") not in await inner.get_items()

    asyncio.run(work())


def test_it_is_shortened_when_it_is_time_and_never_in_the_middle_of_a_turn(store: Any):
    async def work() -> None:
        sent: list[Any] = []
        async with model(nothing, sent) as client:
            await shorten(HoldfastCompactionSession("s", store, client=client), sent)

    async def shorten(session: HoldfastCompactionSession, sent: list[Any]) -> None:
        assert is_openai_responses_compaction_aware_session(session)
        await session.run_compaction({"force": True})
        await session.add_items([said("assistant", str(n)) for n in range(9)])
        await session.run_compaction({"response_id": "r"})
        call: Any = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        titled: Any = {**call, "_agents_tool_title": "Look"}
        await session.add_items([titled])
        await session.run_compaction({"response_id": "r", "force": True})
        assert sent == []
        output: Any = {"type": "function_call_output", "call_id": "c", "output": "a squid"}
        await session.add_items([output])
        await session.run_compaction({"response_id": "r"})
        assert [about["input"][-2:] for about in sent] == [[call, output]]
        assert await session.get_items() == [
            {name: value for name, value in ANSWER[0].items() if name != "id"},
            SHORT,
        ]

    asyncio.run(work())


def test_a_session_that_was_cleared_or_popped_meanwhile_does_not_come_back(store: Any):
    async def work() -> None:
        for name in ("pop_item", "clear_session"):
            other = HoldfastSession(name, store)
            async with model(getattr(other, name)) as client:
                session = HoldfastCompactionSession(name, store, client=client)
                await session.add_items([said("user", "a"), said("assistant", "b")])
                await session.run_compaction({"force": True})
            left = [said("user", "a")] if name == "pop_item" else []
            assert await session.get_items() == left

    asyncio.run(work())


def test_a_call_that_is_cancelled_leaves_the_session_as_it_was(store: Any):
    async def work() -> None:
        never = asyncio.Event()

        async def wait() -> None:
            await never.wait()

        async with model(wait) as client:
            session = HoldfastCompactionSession("s", store, client=client)
            await session.add_items([said("user", "a"), said("assistant", "b")])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.run_compaction({"force": True}), 0.2)
            never.set()
        assert await session.get_items() == [said("user", "a"), said("assistant", "b")]

    asyncio.run(work())


def test_a_model_that_makes_nothing_of_a_session_takes_nothing_from_it(store: Any):
    async def work() -> None:
        async with model(nothing, output=()) as client:
            session = HoldfastCompactionSession("s", store, client=client)
            await session.add_items([said("user", "a"), said("assistant", "b")])
            await session.run_compaction({"force": True})
        assert await session.get_items() == [said("user", "a"), said("assistant", "b")]

    asyncio.run(work())


def test_a_call_that_a_crash_left_open_does_not_stop_it_for_ever(store: Any):
    """The call is not sent, and stays behind what is short: its result may come after all."""
    sent: list[Any] = []
    thought: Any = {"type": "reasoning", "id": "r", "summary": []}
    call: Any = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "seen"}

    async def work() -> None:
        async with model(nothing, sent) as client:
            await shorten(HoldfastCompactionSession("s", store, client=client))

    async def shorten(session: HoldfastCompactionSession) -> None:
        await session.add_items([said("user", "a"), thought, call])
        await session.run_compaction({"force": True})
        assert not sent  # its run may still be at work
        await session.add_items([said("user", "b"), said("assistant", "c")])
        await session.run_compaction({"force": True})
        assert sent[0]["input"] == [said("user", "a"), said("user", "b"), said("assistant", "c")]
        short = [{name: value for name, value in ANSWER[0].items() if name != "id"}, SHORT]
        assert await session.get_items() == short
        await session.add_items([result])
        assert await session.get_items() == [*short, thought, call, result]

    asyncio.run(work())
