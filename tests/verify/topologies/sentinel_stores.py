"""A store behind Sentinel as most people write it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine

Turn = dict[str, Any]
PATIENCE_S = 120.0
"""Longer than another primary takes to be chosen: the answer of the old one is still waited for."""
CLAIMS = Claims(
    exactly_once=NotClaimed("an append has no key"),
    expiring=NotClaimed("everything is kept"),
    recallable=NotClaimed("a log only"),
)


class AcksOfThePrimary:
    """Broken: what the primary answers is an ack, also one that wakes up after it was deposed."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        login = {"password": place.password, "retry": Retry(NoBackoff(), 0)}
        hosts = [host.rpartition(":") for host in place.netloc.rpartition("@")[2].split(",")]
        sentinels = [(host, int(port)) for host, _, port in hosts]
        found: Any = redis.sentinel.Sentinel(
            sentinels, sentinel_kwargs=login, socket_timeout=PATIENCE_S, **login
        )
        self.client: Any = found.master_for(place.path.split("/")[1])

    def append(self, session: str, messages: list[Turn]) -> None:
        self.client.rpush(f"chat:{session}", *map(json.dumps, messages))

    def history(self, session: str, limit: int | None = None) -> list[Turn]:
        return [json.loads(one) for one in self.client.lrange(f"chat:{session}", -(limit or 0), -1)]

    def forget(self, session: str) -> None:
        self.client.delete(f"chat:{session}")

    def close(self) -> None:
        self.client.close()


def acks_of_the_primary(engine: Engine) -> Target:
    return Target(open=lambda: AcksOfThePrimary(engine.url), engine=engine, claims=CLAIMS)
