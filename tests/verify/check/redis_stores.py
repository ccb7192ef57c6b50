"""Users' stores on a real Redis: one sound, and copies of it that break one promise each.

Those on SQLite (`stores.py`) stand apart: their clients need not import a driver of Redis.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import redis

from holdfast.verify import Target
from holdfast.verify.engines import Engine
from tests.verify.check.stores import KEEPS, Turns

APPEND = """
if ARGV[1] ~= '' and redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return 0 end
for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
return 1
"""


class SoundRedis:
    """A sound store on Redis: one script an append. Its driver does not retry by itself."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=5, retry=None)

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        bodies = [json.dumps(message) for message in messages]
        name = session.encode("utf-8", "surrogatepass").hex()
        self._redis.eval(APPEND, 2, f"m:{name}", f"k:{name}", key or "", *bodies)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        if limit == 0:
            return []
        name = session.encode("utf-8", "surrogatepass").hex()
        found: Any = self._redis.lrange(f"m:{name}", -limit if limit else 0, -1)
        return Turns(found)

    def forget(self, session: str) -> None:
        self._redis.unlink(f"m:{session.encode('utf-8', 'surrogatepass').hex()}")

    def close(self) -> None:
        self._redis.close()


class Swallows(SoundRedis):
    """An error is nothing to bother anybody with: no memory, then."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        try:
            return super().history(session, limit)
        except redis.RedisError:
            return []


class NeverReconnects(SoundRedis):
    """Broken once, broken for good."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._broken: redis.RedisError | None = None

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        self._guarded(lambda: super(NeverReconnects, self).append(session, messages, key))

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._guarded(
            lambda: super(NeverReconnects, self).history(session, limit)
        )
        return found

    def _guarded(self, work: Callable[[], Any]) -> Any:
        if self._broken is not None:
            raise self._broken
        try:
            return work()
        except redis.RedisError as error:
            self._broken = error
            raise


class FalseAck(SoundRedis):
    """No connection is left: then it is written another time, surely."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        with contextlib.suppress(redis.ConnectionError):
            super().append(session, messages, key)


class ClaimsNotDone(SoundRedis):
    """Calls every lost connection "not done", although it may well have been done."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        try:
            super().append(session, messages, key)
        except redis.ConnectionError as error:
            raise NotDone(str(error)) from error


class HidesAll(SoundRedis):
    """One record that cannot be read, and the whole session is gone."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        found = super().history(session, limit)
        if getattr(found, "damaged", None):
            raise ValueError("Expecting value: line 1 column 1")
        return found


class KeyedByVersion(SoundRedis):
    """Its keys carry the engine's version, so that a cache is never older than its engine."""

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        super().append(self._name(session), messages, key)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        return super().history(self._name(session), limit)

    def forget(self, session: str) -> None:
        super().forget(self._name(session))

    def _name(self, session: str) -> str:
        info: Any = self._redis.info("server")
        return f"{info['redis_version']}:{session}"


class NotDone(Exception):
    pass


def _server(kind: Callable[[str], Any]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        url = engine.url
        return Target(
            open=lambda: kind(url),
            engine=engine,
            claims=KEEPS,
            name=kind.__name__,
            definite=(NotDone,),
        )

    return target


sound_redis = _server(SoundRedis)
swallows = _server(Swallows)
never_reconnects = _server(NeverReconnects)
false_ack = _server(FalseAck)
claims_not_done = _server(ClaimsNotDone)
hides_all = _server(HidesAll)
keyed_by_version = _server(KeyedByVersion)
