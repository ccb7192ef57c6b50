"""The Redis backend beside raw redis-py and beside frameworks' stores, on one engine that syncs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

import holdfast
from bench.figure import Figure, side_by_side
from holdfast import Message, Store
from holdfast.verify.engines import start_engine

WRITES = 960
ROUNDS = 9
WRITERS = 32
LONG, SHORT = 200_000, 1_000
PAGE = 50
BODY = Message("user", "x" * 200)
RECORD = json.dumps({"id": BODY.id, "role": "user", "content": BODY.content, "at": None}).encode()
FRAMEWORKS = (
    "openai-agents[redis]",
    "langchain-community",
    "llama-index-storage-chat-store-redis",
    "redis",
)
INSTALL_TIMEOUT_S = 900


def run() -> Iterator[Figure]:
    """Every figure of the Redis backend."""
    # On a disk: in memory a sync costs nothing, and every figure would be about something else.
    with start_engine("redis", version="7", config="aof-always", storage="disk") as engine:
        client = redis.Redis.from_url(engine.url)
        with holdfast.connect(engine.url) as store:
            yield from _appends(client, store, engine.url)
            yield from _reads(client, store)
        client.close()
        yield from _beside_frameworks(engine.url)


def _appends(client: Any, store: Store, url: str) -> Iterator[Figure]:
    tasks = Tasks(url)
    ways: dict[str, Callable[[], object]] = {
        "raw": lambda: [client.rpush("raw", RECORD) for _ in range(WRITES)],
        "ours": lambda: [store.append("s", BODY) for _ in range(WRITES)],
        "threads": lambda: _in_threads(store),
        "tasks": tasks.write,
    }
    taken = side_by_side(ways, rounds=ROUNDS)
    tasks.close()
    rate = {name: WRITES / time_s for name, time_s in taken.items()}
    detail = f"raw {rate['raw']:,.0f}/s, ours {{:,.0f}}/s, 200 bytes, appendfsync always"
    yield Figure(
        "one writer, beside raw redis-py RPUSH",
        rate["ours"] / rate["raw"],
        at_least=0.7,
        detail=detail.format(rate["ours"]),
    )
    for name in ("threads", "tasks"):
        yield Figure(
            f"{WRITERS} concurrent appenders ({name}), beside one raw client",
            rate[name] / rate["raw"],
            at_least=3.0,
            detail=detail.format(rate[name]),
        )


def _in_threads(store: Store) -> None:
    def write() -> None:
        for _ in range(WRITES // WRITERS):
            store.append("s", BODY)

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Tasks:
    """Concurrent tasks on one event loop and one store."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._store = self._runner.run(holdfast.connect_async(url))

    def write(self) -> None:
        """The same number of appends as the others."""
        self._runner.run(self._write())

    async def _write(self) -> None:
        async def turns() -> None:
            for _ in range(WRITES // WRITERS):
                await self._store.append("s", BODY)

        await asyncio.gather(*(turns() for _ in range(WRITERS)))

    def close(self) -> None:
        """Close the store, then the loop."""
        self._runner.run(self._store.close())
        self._runner.close()


def _reads(client: Any, store: Store) -> Iterator[Figure]:
    client.rpush("page", *[RECORD] * SHORT)
    for session, count in (("short", SHORT), ("long", LONG)):
        for _ in range(0, count, 1000):
            store.append(session, [BODY] * 1000)

    def raw() -> list[Any]:
        return [json.loads(record) for record in client.lrange("page", -PAGE, -1)]

    ways: dict[str, Callable[[], object]] = {
        "raw": lambda: [raw() for _ in range(20)],
        "short": lambda: [store.history("short", limit=PAGE) for _ in range(20)],
        "long": lambda: [store.history("long", limit=PAGE) for _ in range(20)],
    }
    taken = side_by_side(ways, rounds=41)
    yield Figure(
        f"history(limit={PAGE}), beside raw LRANGE + json.loads",
        taken["short"] / taken["raw"],
        at_most=2.0,
        detail=f"raw {taken['raw'] / 20 * 1e6:.0f} us, ours {taken['short'] / 20 * 1e6:.0f} us",
    )
    yield Figure(
        f"history(limit={PAGE}) of {LONG:,} messages, beside {SHORT:,}",
        taken["long"] / taken["short"],
        at_most=1.3,
        detail=f"{taken['long'] / 20 * 1e6:.0f} us beside {taken['short'] / 20 * 1e6:.0f} us",
    )


def _beside_frameworks(url: str) -> Iterator[Figure]:
    """Current releases, in an environment of their own; one that cannot be had is named."""
    place = Path(".cache/frameworks-redis").absolute()
    python = place / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *FRAMEWORKS]
        subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        yield Figure("beside frameworks: not measured", 0, detail=f"not installed: {error}")
        return
    script = Path(__file__).with_name("frameworks") / "redis_stores.py"
    source = Path(holdfast.__file__).parents[1]
    done = subprocess.run(
        [python, script, url],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{source}:{Path.cwd()}", "PATH": "/usr/bin:/bin"},
        timeout=INSTALL_TIMEOUT_S,
    )
    for line in done.stdout.splitlines():
        yield Figure(**json.loads(line))
