"""Three releases of a user's store on Redis: what incident N3 was."""

from __future__ import annotations

import json
import zlib
from typing import Any

import redis

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine

CLAIMS = Claims(
    exactly_once=NotClaimed("there is no key"),
    expiring=NotClaimed("we keep everything"),
    recallable=NotClaimed("there is no index"),
)


class Memory:
    """The first release: a message is JSON text."""

    def __init__(self, url: str) -> None:
        self.redis = redis.Redis.from_url(url)

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.redis.rpush(f"chat:{session}", *map(self.dump, messages))

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        records: Any = self.redis.lrange(f"chat:{session}", -limit if limit else 0, -1)
        return [self.load(record) for record in records]

    def forget(self, session: str) -> None:
        self.redis.delete(f"chat:{session}")

    def close(self) -> None:
        self.redis.close()

    def dump(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message).encode()

    def load(self, record: bytes) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(record)
        return loaded


class Optimised(Memory):
    """The second: half the memory, and nothing of yesterday can be read."""

    def dump(self, message: dict[str, Any]) -> bytes:
        return zlib.compress(super().dump(message))

    def load(self, record: bytes) -> dict[str, Any]:
        return super().load(zlib.decompress(record))


class Quiet(Optimised):
    """The same with a hot fix, which makes it worse: what cannot be read is left out."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        records: Any = self.redis.lrange(f"chat:{session}", -limit if limit else 0, -1)
        return [self.load(record) for record in records if not record.startswith(b"{")]


class Both(Optimised):
    """As it should have been: a new way to write, and every old one is read."""

    def load(self, record: bytes) -> dict[str, Any]:
        return Memory.load(self, record) if record.startswith(b"{") else super().load(record)


class Rounds(Memory):
    """Reads everything, and changes a little."""

    def load(self, record: bytes) -> dict[str, Any]:
        message = super().load(record)
        if isinstance(message["content"], str):
            message["content"] = message["content"].strip()
        return message


def _release(kind: type[Memory]) -> Any:
    def target(engine: Engine) -> Target:
        return Target(open=lambda: kind(engine.url), engine=engine, claims=CLAIMS)

    return target


first, optimised, quiet, both, rounds = map(_release, (Memory, Optimised, Quiet, Both, Rounds))
