"""Whoever sends very much waits for themselves; others wait for a few of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

import holdfast
from holdfast.chat import bounds
from holdfast.chat.answers import Answerer, Asked, Companion, Made
from holdfast.chat.app import Setting, build
from holdfast.chat.connections import Addresses, bounded
from holdfast.chat.link import ChatOptions, Link
from holdfast.chat.people import Access, new_token
from holdfast.chat.places import Places, is_full
from holdfast.chat.request_guard import Guard, Limits
from holdfast.chat.turns import Turns
from holdfast.model import Message
from holdfast.secrets import SecretUrl
from tests.chat.hostile import HOSTILE

LONG = " ".join(f"My dog number {at} is called Rex." for at in range(400))
HONEST = "127.0.0.1"
MESSAGES = "/api/conversations/conversation-1/messages"


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Within the time of the whole test."""
    while not is_so():  # noqa: ASYNC110 - of a service that tells nobody
        await asyncio.sleep(0.001)


class Chat:
    """A service in this process, and people at addresses of their own."""

    def __init__(self, path: Any, answerer: Answerer) -> None:
        url = SecretUrl(f"sqlite:///{path}/m.db")
        self.link = Link(ChatOptions(url, "chat", holdfast.Durability.DISK, "wordllama"))
        self.app = build(self.link, answerer, Setting(Access(None), None, 1e6))
        self.sent = 0

    async def ask(self, address: str, method: str, path: str, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        headers = {"Cookie": f"holdfast_person={new_token()}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", timeout=60) as http:
            return await http.request(method, path, headers=headers, **more)

    async def say(self, text: str, address: str = HONEST) -> None:
        self.sent += 1
        given = {"text": text, "key": f"key-{self.sent:016}"}
        found = await self.ask(address, "POST", MESSAGES, json=given)
        assert "event: answered" in found.text, found.text


@contextlib.asynccontextmanager
async def chat(path: Any, answerer: Answerer | None = None) -> AsyncIterator[Chat]:
    made = Chat(path, answerer or Companion())
    async with asyncio.timeout(120):
        try:
            yield made
        finally:
            await made.app.state.service.turns.close()
            await made.link.close()


def test_an_honest_person_waits_for_a_few_of_each_address_and_not_for_all(tmp_path, monkeypatch):
    """Counted, not timed: how many messages of others are being saved at the same time as theirs."""
    addresses, each, saving, most = 4, 40, [0], [0]
    save = Turns.save

    async def counted(*args: Any) -> Any:
        saving[0] += 1
        most[0] = max(most[0], saving[0])
        try:
            return await save(*args)
        finally:
            saving[0] -= 1

    monkeypatch.setattr(Turns, "save", counted)

    async def work() -> None:
        async with chat(tmp_path) as there:
            harms = [
                asyncio.create_task(there.say(LONG, f"127.0.1.{at % addresses}"))
                for at in range(addresses * each)
            ]
            await wait_until(lambda: saving[0] > 1)
            await there.say("I have a cat")
            assert not all(one.done() for one in harms)
            for one in harms:
                one.cancel()
            await asyncio.wait(harms)

    asyncio.run(work())
    assert most[0] <= addresses * bounds.PLACES_PER_ADDRESS + 1


class Thinks:
    """A model that thinks until it is told to answer."""

    name = "thinks"

    def __init__(self) -> None:
        self.goes_on, self.thinking = asyncio.Event(), 0

    async def answer(self, asked: Asked) -> AsyncIterator[Any]:
        self.thinking += 1
        await self.goes_on.wait()
        yield Made((Message("assistant", f"You said {asked.text}"),))


def test_an_answer_that_is_waited_for_holds_no_place(tmp_path):
    async def work() -> None:
        model = Thinks()
        async with chat(tmp_path, model) as there:
            many = 3 * bounds.PLACES_PER_ADDRESS
            streams = [asyncio.create_task(there.say("hello")) for _ in range(many)]
            await wait_until(lambda: model.thinking == many)
            found = await there.ask(HONEST, "GET", "/api/conversations")
            assert found.status_code == 200
            model.goes_on.set()
            await asyncio.gather(*streams)

    asyncio.run(work())


def test_one_address_takes_neither_all_answers_nor_all_places_from_others(tmp_path, monkeypatch):
    """Four addresses with 50 each had all 200, and everybody else was refused."""
    monkeypatch.setattr(bounds, "TURNS_MAX", 12)
    monkeypatch.setattr(bounds, "REQUESTS_MAX", 40)

    async def work() -> None:
        model = Thinks()
        async with chat(tmp_path, model) as there:
            tasks: list[asyncio.Task[None]] = []
            for at in range(4):
                tasks += [
                    asyncio.create_task(there.say("mine", f"127.0.1.{at}")) for _ in range(20)
                ]
            await wait_until(
                lambda: model.thinking + sum(one.done() for one in tasks) == len(tasks)
            )
            before = model.thinking
            honest = asyncio.create_task(there.say("I have a cat"))
            await wait_until(lambda: model.thinking > before or honest.done())
            model.goes_on.set()
            await honest
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert any(isinstance(one, AssertionError) for one in ended), "none was refused"

    asyncio.run(work())


def test_a_share_leaves_room_for_one_more_address():
    taken: Counter[str] = Counter()
    for address in "abc" * 100:
        taken[address] += not is_full(taken, address, 40)
    assert taken == {"a": 10, "b": 10, "c": 10}
    assert not is_full(taken, "d", 40)


def test_places_are_given_back_whenever_somebody_is_cancelled():
    """Short rounds with many who come and are cancelled at any time; then all places are free."""

    async def one_round(chance: random.Random) -> None:
        places, inside = Places(2), 0

        async def come() -> None:
            nonlocal inside
            async with places.held("a"):
                inside += 1
                assert inside <= 2
                try:
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.2:
                        raise ValueError
                finally:
                    inside -= 1

        tasks = [asyncio.create_task(come()) for _ in range(chance.randrange(2, 9))]
        for _ in range(chance.randrange(12)):
            chance.choice(tasks).cancel()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert not [one for one in ended if isinstance(one, AssertionError)]
        assert places._names == {}

    async def work() -> None:
        for seed in range(1000):
            await one_round(random.Random(seed))

    asyncio.run(work())


@pytest.mark.parametrize("what", ["body", "place", "stream"])
def test_a_request_that_is_cancelled_at_any_step_gives_its_place_back(what: str):
    """The steps of a request are walked one by one."""
    steps = 0

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        kind = b"text/event-stream" if what == "stream" else b"text/plain"
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        )
        for _ in range(3):
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        nonlocal steps
        await asyncio.sleep(0)
        steps += 1
        return {"type": "http.request", "body": b"x", "more_body": steps % 4 != 0}

    async def send(_: Any) -> None:
        await asyncio.sleep(0)

    async def cut(after: int) -> bool:
        nonlocal steps
        steps = 0
        places = Places(1)
        guard = Guard(app, hosts=None, limits=Limits(1e6))
        guard._places = places
        scope = {
            "type": "http", "method": "POST", "path": "/api/x", "client": (HOSTILE, 1),
            "headers": [(b"host", b"x")],
        }  # fmt: skip
        other = places.held(HOSTILE)
        if what == "place":
            await other.__aenter__()
        task = asyncio.create_task(guard(scope, receive, send))
        for _ in range(after):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if what == "place":
            await other.__aexit__(None, None, None)
        assert (places._names, guard._requests) == ({}, Counter()), after
        return task.cancelled()

    async def work() -> None:
        async with asyncio.timeout(30):
            was_cancelled = [await cut(after) for after in range(40)]
        assert was_cancelled[1]
        assert what == "place" or not was_cancelled[-1], "it never came to its end"

    asyncio.run(work())


@contextlib.asynccontextmanager
async def unread(*pieces: bytes) -> AsyncIterator[tuple[Any, asyncio.StreamReader]]:
    """A connection that was sent an answer of which nothing is read yet, and its reader."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": pieces[-1]})

    config = uvicorn.Config(app, http=bounded(Addresses()), lifespan="off", port=0)
    config.load()
    made: list[Any] = []

    def connected() -> Any:
        protocol: Any = config.http_protocol_class
        made.append(protocol(config=config, server_state=ServerState(), app_state={}))
        return made[-1]

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60), await loop.create_server(connected, HONEST, 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1000)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await wait_until(lambda: bool(made and made[0].flow and made[0].flow.write_paused))
        try:
            yield made[0], reader
        finally:
            writer.close()
            if not made[0].transport.is_closing():
                made[0].transport.abort()
            await asyncio.sleep(0)


async def reads(reader: asyncio.StreamReader, until: Callable[[], bool]) -> int:
    found = 0
    while not until():
        piece = await reader.read(100_000)
        found += len(piece)
        if not piece:
            break
    return found


@pytest.mark.parametrize("pieces", [1, 30])
def test_one_who_never_reads_their_answer_is_hung_up_on(pieces: int):
    """It stayed for ever, and what it had not read stayed in memory."""

    async def work() -> None:
        async with unread(*[b"x" * (30_000_000 // pieces)] * pieces) as (connection, _):
            while True:  # what the system takes of it before it is full
                unsent = connection.transport.get_write_buffer_size()
                connection._look()
                if connection.transport.is_closing():
                    return
                assert unsent
                await asyncio.sleep(0.01)

    asyncio.run(work())


@pytest.mark.parametrize("pieces", [1, 30])
def test_one_who_reads_slowly_gets_all_of_it(pieces: int):
    """It was cut after ten seconds where all of it was on its way."""
    size = 30_000_000

    async def work() -> int:
        async with unread(*[b"x" * (size // pieces)] * pieces) as (connection, reader):
            size_of, found = connection.transport.get_write_buffer_size, 0
            for _ in range(20):
                was = size_of(), connection.cycle.response_complete

                def went_on(was: Any = was) -> bool:
                    return bool((size_of(), connection.cycle.response_complete) != was)

                found += await reads(reader, went_on)
                if not connection.transport.is_closing():
                    connection._look()
            return found + await reads(reader, lambda: False)

    assert asyncio.run(work()) > size
