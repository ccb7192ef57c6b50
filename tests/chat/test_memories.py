"""Memories of the chat: moved from earlier releases, killed, cancelled and forgotten midway."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Message, SessionState
from holdfast.chat import panel
from holdfast.chat.answers import Companion, is_there
from holdfast.chat.people import Person, new_token
from holdfast.chat.person_memories import memory_of, move_old_memories
from holdfast.chat.turns import Sent, Turns
from holdfast.contract import AsyncStore

TUESDAY = datetime(2026, 11, 10, 9, tzinfo=UTC)
OLD = [("I have a dog", 1), ("I live in Porto", 1), ("I like tea", 5), ("of no message", 0)]
KEY = "key-0000-0000-0001"
PLACE = "conversation-1"
KILLED_MOVE = """
import asyncio, os, signal, sys
import holdfast
from holdfast.chat.person_memories import move_old_memories
from holdfast.contract import AsyncStore

left = int(sys.argv[2])

def struck(work):
    async def call(*given, **named):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await work(*given, **named)
    return call

AsyncStore.remember = struck(AsyncStore.remember)
AsyncStore.forget = struck(AsyncStore.forget)

async def main():
    await move_old_memories(await holdfast.connect_async(sys.argv[1], namespace="chat"))

asyncio.run(main())
"""


@pytest.fixture
def person() -> Person:
    return Person.of(new_token())


@pytest.fixture(params=["sqlite", "redis"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/memory.db"
    engine = request.getfixturevalue("redis_engine_factory")(config="aof-always", storage="disk")
    return str(engine.url)


def on(url: str, work: Callable[[AsyncStore], Awaitable[Any]]) -> Any:
    """Do this on a store of the chat, opened for it."""

    async def run() -> Any:
        store = await holdfast.connect_async(
            url,
            namespace="chat",
            embedder="wordllama",
            require=holdfast.Durability.PROCESS,
            background_indexing=False,
        )
        async with store:
            return await work(store)

    return asyncio.run(run())


async def write_old(store: AsyncStore, person: Person) -> None:
    """Two turns as the release before this one wrote them: memories are messages of a session."""
    session = person.session(PLACE)
    said = Message("user", "I have a dog. I live in Porto.", extra={"key": KEY})
    await store.append(session, said, key=KEY)
    await store.append(session, [Message("assistant", "yes")] * 3, key=f"answer/{KEY}")
    await store.append(session, Message("user", "I like tea"), key="key-0000-0000-0002")
    for text, seq in OLD:
        made = {"conversation": PLACE if seq else "", "seq": seq}
        memory = Message("memory", text, created_at=TUESDAY, extra={"from": made})
        await store.append(f"{person.prefix}memory", memory, key=f"{PLACE}/{text}")


async def kept(store: AsyncStore, person: Person) -> list[tuple[str, str, int]]:
    found = [memory_of(one) for one in await store.memories(person.memories)]
    return [(one.text, one.conversation, one.seq) for one in found]


MOVED = [(text, PLACE if seq else "", seq) for text, seq in OLD]


def test_memories_of_an_earlier_release_are_moved_once(url, person):
    async def work(store: AsyncStore) -> None:
        await write_old(store, person)
        await store.recall(f"{person.prefix}memory", "dog")
        for _ in range(2):
            await move_old_memories(store)
            assert await kept(store, person) == MOVED
        old = await store.stat(f"{person.prefix}memory")
        assert old.state is SessionState.FORGOTTEN
        assert [one["at"] for one in (await panel.memories(store, person))["memories"]] == (
            [TUESDAY.isoformat()] * 4
        )
        [hit] = await store.recall(person.memories, "Where do I live?", k=1)
        assert (hit.text, hit.source) == (
            "I live in Porto",
            holdfast.Source(person.session(PLACE), 1, 1),
        )
        # The page sends again what was not answered before the service was replaced.
        again = Sent(PLACE, "I have a dog. I live in Porto.", KEY)
        assert (await Turns(Companion()).save(store, person, again)).ack.repeated
        assert await kept(store, person) == MOVED
        gone = await panel.forget_conversation(store, person, PLACE)
        assert (gone.conversations, gone.messages, gone.memories) == (1, 5, 3)
        assert await kept(store, person) == [("of no message", "", 0)]
        assert (await panel.forget_all(store, person)).memories == 1
        assert await kept(store, person) == []

    on(url, work)


@pytest.mark.parametrize("calls", range(len(OLD) + 2))
def test_a_move_that_is_killed_goes_on_and_doubles_nothing(calls, tmp_path, person):
    """Before each memory, before the old session is forgotten, and after all."""
    url = f"sqlite:///{tmp_path}/memory.db"
    on(url, lambda store: write_old(store, person))
    done = subprocess.run([sys.executable, "-c", KILLED_MOVE, url, str(calls)], timeout=120)
    assert done.returncode == (0 if calls == len(OLD) + 1 else -signal.SIGKILL)

    async def look(store: AsyncStore) -> None:
        assert len(await kept(store, person)) == min(calls, len(OLD))
        await move_old_memories(store)
        assert await kept(store, person) == MOVED

    on(url, look)


def test_an_old_memory_that_cannot_be_moved_whole_stops_nothing(url, person):
    async def work(store: AsyncStore) -> None:
        session = f"{person.prefix}memory"
        odd = {"conversation": "../x", "seq": "y"}
        await store.append(session, Message("memory", "odd", extra={"from": odd}))
        await store.append(session, Message("memory", " "))
        await move_old_memories(store)
        assert await kept(store, person) == [("odd", "", 0)]
        assert (await store.stat(session)).state is SessionState.FORGOTTEN

    on(url, work)


@pytest.mark.parametrize("calls", range(4))
def test_a_save_that_is_cancelled_in_a_write_is_completed_by_a_retry(
    calls, url, person, monkeypatch
):
    """In the append of the message, or in one of its three memories."""
    texts = ["I have a dog", "I live in Porto", "I like tea"]
    sent = Sent(PLACE, ". ".join(texts), KEY)
    left = [calls]

    def cancelled(write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # comes where this write first waits for the engine
            return await write(*given, **named)

        return call

    for name in ("append", "remember"):
        monkeypatch.setattr(AsyncStore, name, cancelled(getattr(AsyncStore, name)))

    async def work(store: AsyncStore) -> None:
        turns = Turns(Companion())
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(turns.save(store, person, sent))
        assert len(await kept(store, person)) < len(texts) or calls == len(texts)
        await turns.save(store, person, sent)
        assert [text for text, *_ in await kept(store, person)] == texts
        assert len(await store.history(person.session(PLACE))) == 1

    on(url, work)


def test_two_tabs_at_once_lose_and_double_nothing(url, person):
    async def work(store: AsyncStore) -> None:
        turns = Turns(Companion())
        same = [turns.save(store, person, Sent(PLACE, "I have a dog", KEY)) for _ in range(4)]
        other = [
            turns.save(store, person, Sent("conversation-2", f"I have {at} cats", f"{KEY}{at}"))
            for at in range(20)
        ]
        await asyncio.gather(*same, *other)
        found = await kept(store, person)
        assert len(found) == 21
        assert {text for text, *_ in found} == {
            "I have a dog",
            *(f"I have {at} cats" for at in range(20)),
        }

    on(url, work)


@pytest.mark.parametrize("everything", [False, True])
def test_no_memory_outlives_the_message_that_it_comes_from(everything, url, person):
    async def work(store: AsyncStore) -> None:
        turns = Turns(Companion())

        async def forget() -> None:
            async with turns.alone(person):
                if everything:
                    await panel.forget_all(store, person)
                else:
                    await panel.forget_conversation(store, person, PLACE)

        async def save(at: int) -> None:
            await turns.save(store, person, Sent(PLACE, f"I have {at} cats", f"{KEY}{at}"))

        await asyncio.gather(*(forget() if at % 5 == 4 else save(at) for at in range(30)))
        for at in range(30):
            if at % 5 != 4:
                await save(at)  # a late retry
        for _, conversation, seq in await kept(store, person):
            assert await is_there(store, person.session(conversation), seq)
        await forget()
        assert await kept(store, person) == []
        assert (await panel.search(store, person, "cats"))["memories"] == []

    on(url, work)


def test_a_memory_deleted_twice_at_once_and_cancelled_is_deleted_once(url, person):
    async def work(store: AsyncStore) -> None:
        turns = Turns(Companion())
        await turns.save(store, person, Sent(PLACE, "I have a dog. I like tea", KEY))
        cancelled = asyncio.create_task(store.forget_memory(person.memories, 1))
        await asyncio.sleep(0)
        cancelled.cancel()
        erased = await asyncio.gather(
            *(store.forget_memory(person.memories, 1) for _ in range(4)), cancelled,
            return_exceptions=True,
        )  # fmt: skip
        assert sum(one.memories for one in erased[:4] if isinstance(one, holdfast.Erased)) <= 1
        await turns.save(store, person, Sent(PLACE, "I have a dog. I like tea", KEY))
        assert await kept(store, person) == [("I like tea", PLACE, 1)]

    on(url, work)
