"""Redis, Valkey and Redis Cluster in the contract suite: one server for the run, emptied for each test."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path
from typing import Any

from redis import Redis

from holdfast import Durability
from holdfast.backends.redis.keys import Keys, slot_of
from holdfast.commands import sublogs_of
from holdfast.verify.engines import start_engine
from tests import wheels

KEYS = Keys(b"default")


@functools.cache
def engine(kind: str, version: str, config: str) -> Any:
    """Started for the first test that needs it, ended with the run."""
    started = (
        wheels.start(kind, config=config)
        if version == "8"
        else start_engine(kind, version=version, config=config)
    )
    atexit.register(started.close)
    return started


class RedisHarness:
    """A server with nothing in it. It deletes; its file keeps a copy until it is rewritten."""

    level = Durability.DISK
    scrubs = False
    kind, version, config = "redis", "7", "aof-always"

    def __init__(self, _folder: Path) -> None:
        self.engine = engine(self.kind, self.version, self.config)
        self.url: str = self.engine.url
        for node in self.nodes():
            node.call("FLUSHALL")

    def nodes(self) -> list[Any]:
        return [self.engine]

    def tamper(self, session: str, seq: int, record: bytes) -> None:
        log = KEYS.session(session.encode())[1]
        with self._client(log) as client:
            assert client.lset(log, self._place(client, session, seq), record)

    def raw(self, session: str, seq: int) -> bytes:
        log = KEYS.session(session.encode())[1]
        with self._client(log) as client:
            record = client.lindex(log, self._place(client, session, seq))
        assert isinstance(record, bytes)
        return record

    def leftovers(self, text: bytes) -> list[str]:
        """Not looked for: the append-only file has a copy until it is rewritten, and the store says so."""
        raise NotImplementedError

    def _client(self, key: bytes) -> Any:
        node = next(node for node in self.nodes() if self._serves(node, slot_of(key)))
        return Redis.from_url(node.url)

    def _serves(self, _node: Any, _slot: int) -> bool:
        return True

    def _place(self, client: Any, session: str, seq: int) -> int:
        return seq - int(client.hget(KEYS.session(session.encode())[0], "floor")) - 1


class Redis62Harness(RedisHarness):
    """The oldest that is supported."""

    version = "6.2"


class Redis8Harness(RedisHarness):
    """It has vector sets."""

    version = "8"

    def compared_by_engine(self, scope: str) -> int:
        """How many vectors of messages and memories of a scope the server has to compare."""
        logs = (scope.encode(), *sublogs_of(scope.encode()))
        stems = [KEYS.session(log)[0].decode().removesuffix("head") for log in logs]
        return sum(self.engine.call("VCARD", f"{stem}near") for stem in stems)


class ValkeyHarness(RedisHarness):
    """It has WAITAOF."""

    kind, version = "valkey", "9"


class ClusterHarness(RedisHarness):
    """Three primaries; a session's keys are on one, the index of names on another."""

    config = "cluster"

    def nodes(self) -> list[Any]:
        return list(self.engine.nodes)

    def _serves(self, node: Any, slot: int) -> bool:
        return any(
            first <= slot <= last and port == node.port
            for first, last, (_, port, *_), *_ in node.call("CLUSTER", "SLOTS")
        )
