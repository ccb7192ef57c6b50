"""The Redis backend beside raw redis-py and beside frameworks' stores, on one engine that syncs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import redis

import holdfast
from bench.figure import Figure, side_by_side
from bench.frameworks import in_environment
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


def run() -> Iterator[Figure]:
    """Every figure of the Redis backend."""
    # On a disk: in memory a sync costs nothing, and every figure would be about something else.
    with start_engine("redis", version="7", config="aof-always", storage="disk") as engine:
        client = redis.Redis.from_url(engine.url)
        with holdfast.connect(engine.url) as store:
            yield from _appends(client, store, engine.url)
            yield from _reads(client, store)
        client.close()
        yield from in_environment("redis", FRAMEWORKS, "redis_stores.py", engine.url)


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
