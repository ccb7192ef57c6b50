"""The chat service under fifty people, and under SIGKILL while they write."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.figure import Figure
from holdfast.chat.people import new_token
from holdfast.verify.browser import find_browser, start_playwright
from holdfast.verify.engines.service import Service

PEOPLE = 50
PAUSE_S = (1.0, 5.0)
"""Between the end of an answer and the next message; about twenty messages per second in all."""
HASTE_S = (0.0, 0.3)
"""The same while the service is killed again and again: there is hardly a moment without a send."""
SECONDS = 20.0
KILLS = 20
UP_S = (0.2, 4.0)
"""How long it is up before it is killed: while its model loads, and later in full work."""
PAINTS = 5
SAYINGS = ("I like {}", "My friend {} lives in Porto", "What do you know about {}?")


@dataclass(slots=True)
class Person:
    """One of the people: what they were told is saved, and how long that took."""

    token: str = field(default_factory=new_token)
    acknowledged: list[str] = field(default_factory=list)
    sends_s: list[float] = field(default_factory=list)
    retries: int = 0


def run() -> Iterator[Figure]:
    """Every figure of the chat page."""
    command = [str(Path(sys.executable).with_name("holdfast")), "chat", "--port", "{port}"]
    store = ["--store", "sqlite:///{data_dir}/memory.db", "--rate", "1000"]
    with Service([*command, *store], health="/readyz", storage="disk") as service:
        yield _speed(service)
        yield _kills(service)
        yield _paint(service)


def _speed(service: Service) -> Figure:
    asyncio.run(_chat(service, 1, PAUSE_S[1] + 0.1))  # until the model for recall is loaded
    people = asyncio.run(_chat(service, PEOPLE, SECONDS))
    sends = sorted(took for one in people for took in one.sends_s)
    late = 100 * sum(1 for took in sends if took > 0.1) / len(sends)
    middle, most = statistics.median(sends), sends[int(len(sends) * 0.95)]
    return Figure(
        f"chat: durable sends of {PEOPLE} people on SQLite that took longer than 100 ms",
        late,
        at_most=5.0,
        unit="%",
        detail=f"{len(sends)} sends; median {middle * 1000:.0f} ms, 95 % below {most * 1000:.0f} ms",
    )


def _kills(service: Service) -> Figure:
    people = asyncio.run(_chat_under_kills(service))
    lost = twice = 0
    for one in people:
        there = _said(service, one)
        lost += sum(1 for text in one.acknowledged if text not in there)
        twice += len(there) - len(set(there))
    count = sum(len(one.acknowledged) for one in people)
    retries = sum(one.retries for one in people)
    return Figure(
        f"chat: acknowledged messages lost or doubled over {KILLS} SIGKILLs",
        lost + twice,
        at_most=0,
        unit="",
        detail=f"{count} acknowledged by {PEOPLE} people, {retries} tries again",
    )


async def _chat(service: Service, people: int, seconds: float) -> list[Person]:
    chosen = [Person() for _ in range(people)]
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=people, max_keepalive_connections=people)
    async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=limits) as http:
        talks = (
            _talk(http, one, lambda: time.monotonic() > until, at, PAUSE_S)
            for at, one in enumerate(chosen)
        )
        await asyncio.gather(*talks)
    return chosen


async def _talk(
    http: httpx.AsyncClient,
    one: Person,
    over: Callable[[], bool],
    seed: int,
    pause_s: tuple[float, float],
) -> None:
    chance = random.Random(seed)
    await asyncio.sleep(chance.uniform(0, pause_s[1]))
    while not over():
        at = len(one.acknowledged)
        text = SAYINGS[at % len(SAYINGS)].format(f"thing-{seed}-{at}")
        await _send(http, one, text, f"key-{seed:08}-{at:08}")
        await asyncio.sleep(chance.uniform(*pause_s))


async def _send(http: httpx.AsyncClient, one: Person, text: str, key: str) -> None:
    """As the page does: the same key until it is saved and answered."""
    headers = {"Cookie": f"holdfast_person={one.token}"}
    path, body = "/api/conversations/conversation/messages", {"text": text, "key": key}
    saved = False
    while True:
        begun = time.perf_counter()
        try:
            async with http.stream("POST", path, json=body, headers=headers) as answer:
                answer.raise_for_status()
                if not saved:
                    one.sends_s.append(time.perf_counter() - begun)
                    one.acknowledged.append(text)
                    saved = True
                async for _ in answer.aiter_raw():
                    pass
                return
        except httpx.HTTPError:
            one.retries += 1
            await asyncio.sleep(0.1)


async def _chat_under_kills(service: Service) -> list[Person]:
    stop = asyncio.create_task(_kill_again_and_again(service))
    chosen = [Person() for _ in range(PEOPLE)]
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        talks = (_talk(http, one, stop.done, at, HASTE_S) for at, one in enumerate(chosen))
        await asyncio.gather(stop, *talks)
    return chosen


async def _kill_again_and_again(service: Service) -> None:
    chance = random.Random(KILLS)
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(*UP_S))
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)


def _said(service: Service, one: Person) -> list[str]:
    found: list[str] = []
    before = ""
    while True:
        page = httpx.get(
            f"{service.url}/api/conversations/conversation/messages{before}",
            headers={"Cookie": f"holdfast_person={one.token}"},
            timeout=30,
        ).json()["messages"]
        found += [message["content"] for message in page if message["role"] == "user"]
        if not page or page[0]["seq"] == 1:
            return found
        before = f"?before={page[0]['seq']}"


def _paint(service: Service) -> Figure:
    driver = start_playwright()
    try:
        times = []
        for _ in range(PAINTS):
            browser = driver.chromium.launch(executable_path=find_browser())
            page = browser.new_page()
            page.goto(service.url)
            page.locator("#pill[data-state=up]").wait_for()
            times.append(
                page.evaluate(
                    "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
            )
            browser.close()
    finally:
        driver.stop()
    return Figure(
        "chat: first paint on loopback, in a browser without a cache",
        statistics.median(times) / 1000,
        at_most=1.0,
        unit="s",
        detail=", ".join(f"{taken:.0f} ms" for taken in times),
    )
