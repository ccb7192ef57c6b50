"""Memory stores as they are often written on Redis. Each loses something; none says so.

They are the stores of the third, fourth and fifth night. All have `append(session, messages)`,
`history(session, limit)` and `forget(session)`; messages are dictionaries. `pause` stands for
the moment at which something else happens: the tests put it there, a busy evening does too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import redis

Turn = dict[str, Any]
Pause = Callable[[], object]


def nothing() -> None:
    """Nothing happens in between."""


class ListStore:
    """One list a session, RPUSH and LRANGE: what the broken ones below are variations of."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        # As most people connect; the driver's own retries are on.
        self.client: Any = redis.Redis(
            host=place.hostname or "", port=place.port or 6379, password=place.password
        )

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        self.client.rpush(self.key(session), *map(self.encode, messages))
        pause()

    def history(self, session: str, limit: int = 50) -> list[Turn]:
        return [self.decode(data) for data in self.client.lrange(self.key(session), -limit, -1)]

    def forget(self, session: str) -> None:
        self.client.delete(self.key(session))

    def close(self) -> None:
        self.client.close()

    def key(self, session: str) -> str:
        return f"chat:{session}"

    def encode(self, message: Turn) -> bytes:
        return json.dumps(message).encode()

    def decode(self, data: bytes) -> Turn:
        message: Turn = json.loads(data)
        return message


class DocumentStore(ListStore):
    """The whole session as one JSON text: read it, add to it, write it back."""

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        there = self.history(session, limit=1_000_000)
        pause()
        self.client.set(self.key(session), json.dumps([*there, *messages]))

    def history(self, session: str, limit: int = 50) -> list[Turn]:
        there: list[Turn] = json.loads(self.client.get(self.key(session)) or "[]")
        return there[-limit:]


class OneByOneStore(ListStore):
    """A question, then its answer: two writes, and a crash finds the place between them."""

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        for message in messages:
            self.client.rpush(self.key(session), self.encode(message))
            pause()


class FiveMinuteStore(ListStore):
    """One line was changed, and every session goes through it."""

    ttl_s: float = 300

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        super().append(session, messages, pause=pause)
        self.client.pexpire(self.key(session), round(self.ttl_s * 1000))


class TtlPerMessageStore(ListStore):
    """A key a message, each with a time to live of its own: the beginning is forgotten first."""

    ttl_s: float = 0.4

    def append(self, session: str, messages: Sequence[Turn], *, pause: Pause = nothing) -> None:
        for message in messages:
            number = self.client.incr(f"count:{session}")
            ttl_ms = round(self.ttl_s * 1000)
            self.client.set(f"chat:{session}:{number:09}", self.encode(message), px=ttl_ms)
        pause()

    def history(self, session: str, limit: int = 50) -> list[Turn]:
        keys = sorted(self.client.scan_iter(f"chat:{session}:*"))
        found = [self.client.get(key) for key in keys[-limit:]]
        return [self.decode(data) for data in found if data]


class CompressingStore(ListStore):
    """The next release: records are smaller now. Nobody tried it on yesterday's data."""

    def encode(self, message: Turn) -> bytes:
        return zlib.compress(super().encode(message))

    def decode(self, data: bytes) -> Turn:
        return super().decode(zlib.decompress(data))
