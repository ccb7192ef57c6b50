"""The Redis backend beside raw redis-py and beside frameworks' stores, on one engine that syncs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import redis

import holdfast
from bench.figure import Figure, side_by_side
from bench.log import BODY, PAGE, RECORD, Appenders, beside_raw, newest_pages
from holdfast import Store
from holdfast.verify.engines import start_engine

WRITES = 960
ROUNDS = 9
WRITERS = 32
LONG, SHORT = 200_000, 1_000
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
    each = WRITES // WRITERS
    with closing(Appenders(WRITERS, turns=each, store=store, async_url=url)) as many:
        ways: dict[str, Callable[[], object]] = {
            "raw": lambda: [client.rpush("raw", RECORD) for _ in range(WRITES)],
            "ours": lambda: [store.append("s", BODY) for _ in range(WRITES)],
            "threads": many.threads,
            "tasks": many.tasks,
        }
        taken = side_by_side(ways, rounds=ROUNDS)
    rate = {name: WRITES / time_s for name, time_s in taken.items()}
    appenders = f"{WRITERS} concurrent appenders"
    yield from beside_raw(rate, "redis-py RPUSH", at_least=0.7, many=appenders, many_at_least=3.0)


def _reads(client: Any, store: Store) -> Iterator[Figure]:
    client.rpush("page", *[RECORD] * SHORT)

    def raw() -> list[Any]:
        return [json.loads(record) for record in client.lrange("page", -PAGE, -1)]

    yield from newest_pages(store, raw, "LRANGE", at_most=2.0, long=LONG, short=SHORT)


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
