"""What the benches of the logs share: a message, many appenders at once, the newest page."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator

import holdfast
from bench.figure import Figure, side_by_side
from holdfast import Message, Store

PAGE = 50
READS = 20
BODY = Message("user", "x" * 200)
RECORD = json.dumps({"id": BODY.id, "role": "user", "content": BODY.content, "at": None}).encode()
"""The same JSON that our log holds."""


def one(_number: int) -> str:
    """All write to one session."""
    return "all write here"


def own(number: int) -> str:
    """Each writes to its own session."""
    return f"session of {number}"


class Appenders:
    """So many that append at once, as threads on one store or as tasks on another."""

    def __init__(self, count: int, *, turns: int, store: Store, async_url: str) -> None:
        self._count, self._turns, self._store = count, turns, store
        self._runner = asyncio.Runner()
        self._async_store = self._runner.run(holdfast.connect_async(async_url))

    def threads(self, name: Callable[[int], str] = one) -> None:
        """All of their turns, by threads."""

        def write(number: int) -> None:
            for _ in range(self._turns):
                self._store.append(name(number), BODY)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(self._count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def tasks(self, name: Callable[[int], str] = one) -> None:
        """All of their turns, by tasks of one event loop."""

        async def write(number: int) -> None:
            for _ in range(self._turns):
                await self._async_store.append(name(number), BODY)

        async def all_of_them() -> None:
            await asyncio.gather(*(write(number) for number in range(self._count)))

        self._runner.run(all_of_them())

    def close(self) -> None:
        """Close the store, then the loop."""
        self._runner.run(self._async_store.close())
        self._runner.close()


def beside_raw(
    rate: dict[str, float], raw: str, *, at_least: float, many: str, many_at_least: float
) -> Iterator[Figure]:
    """Appends a second of one writer, then of many in each way, beside one raw writer."""
    detail = f"raw {rate['raw']:,.0f}/s, ours {{:,.0f}}/s, 200 bytes, synced"
    for name in [name for name in rate if name != "raw"]:
        alone = name == "ours"
        yield Figure(
            f"one writer, beside raw {raw}" if alone else f"{many} ({name}), beside one raw writer",
            rate[name] / rate["raw"],
            at_least=at_least if alone else many_at_least,
            detail=detail.format(rate[name]),
        )


def newest_pages(
    store: Store, raw: Callable[[], object], words: str, *, at_most: float, long: int, short: int
) -> Iterator[Figure]:
    """The newest page of a short session beside raw, and of a long one beside the short one."""
    for session, count in (("short", short), ("long", long)):
        for _ in range(0, count, 1000):
            store.append(session, [BODY] * 1000)
    ways: dict[str, Callable[[], object]] = {
        "raw": lambda: [raw() for _ in range(READS)],
        "short": lambda: [store.history("short", limit=PAGE) for _ in range(READS)],
        "long": lambda: [store.history("long", limit=PAGE) for _ in range(READS)],
    }
    us = {name: time_s / READS * 1e6 for name, time_s in side_by_side(ways, rounds=31).items()}
    yield Figure(
        f"history(limit={PAGE}), beside raw {words} + json.loads",
        us["short"] / us["raw"],
        at_most=at_most,
        detail=f"raw {us['raw']:.0f} us, ours {us['short']:.0f} us",
    )
    yield Figure(
        f"history(limit={PAGE}) of {long:,} messages, beside {short:,}",
        us["long"] / us["short"],
        at_most=1.3,
        detail=f"{us['long']:.0f} us beside {us['short']:.0f} us",
    )
