"""Users' stores that keep others out by a version or by a lock, and what they forget meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import redis

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine

Turn = dict[str, Any]
CLAIMS = Claims(
    exactly_once=NotClaimed("there is no key"),
    expiring=NotClaimed("we keep everything"),
    recallable=NotClaimed("there is no index"),
)
LEASE_S = 1.5


class Busy(Exception):
    """Too many want this session at once; nothing was written."""


class Document:
    """A session is one JSON document, which is read, changed and written back under WATCH."""

    tries = 1_000

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=5, retry=None)

    def append(self, session: str, messages: list[Turn]) -> None:
        with self._redis.pipeline() as pipe:
            for _ in range(self.tries):
                try:
                    pipe.watch(_key(session))
                    held = json.loads(pipe.get(_key(session)) or "[]")
                    pipe.multi()
                    pipe.set(_key(session), json.dumps([*held, *messages]))
                    pipe.execute()
                    return
                except redis.WatchError:
                    continue
        self.give_up(session)

    def give_up(self, session: str) -> None:
        raise Busy(session)

    def history(self, session: str, limit: int | None) -> list[Turn]:
        held: list[Turn] = json.loads(self._redis.get(_key(session)) or "[]")
        return held if limit is None else held[len(held) - min(limit, len(held)) :]

    def forget(self, session: str) -> None:
        self._redis.delete(_key(session))

    def close(self) -> None:
        self._redis.close()


class GivesUpAloud(Document):
    """Sound: three tries, then the caller hears that nothing was written."""

    tries = 3


class GivesUpQuietly(Document):
    """Ten tries are plenty, and whoever loses them all is told nothing."""

    tries = 10

    def give_up(self, session: str) -> None:
        print("too busy:", session)


class Leased(Document):
    """A lock keeps others out, for as long as a request surely takes at most; then it is free again."""

    def append(self, session: str, messages: list[Turn]) -> None:
        with self._redis.lock(f"lock:{_key(session)}", timeout=LEASE_S, blocking_timeout=20):
            held = json.loads(self._redis.get(_key(session)) or "[]")
            held += messages
            self._redis.set(_key(session), json.dumps(held))


class Fenced(Document):
    """Sound: the same lock, and the write is refused where the lock is no longer one's own."""

    WRITE = """
    if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
    """

    def append(self, session: str, messages: list[Turn]) -> None:
        name = _key(session)
        lock = self._redis.lock(f"lock:{name}", timeout=LEASE_S, blocking_timeout=20)
        if not lock.acquire():
            raise Busy(session)
        held = json.loads(self._redis.get(name) or "[]")
        body = json.dumps([*held, *messages])
        if not self._redis.eval(self.WRITE, 2, name, f"lock:{name}", lock.local.token, body):
            raise Busy(session)
        with contextlib.suppress(redis.exceptions.LockError):
            lock.release()  # it may have ended by itself; what was written is written


def _key(session: str) -> str:
    return session.encode("utf-8", "surrogatepass").hex()


def _target(kind: type[Document]) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        url = engine.url
        return Target(
            open=lambda: kind(url),
            engine=engine,
            claims=CLAIMS,
            name=kind.__name__,
            definite=(Busy,),
            thread_safe=True,
        )

    return target


document = _target(Document)
gives_up_aloud = _target(GivesUpAloud)
gives_up_quietly = _target(GivesUpQuietly)
leased = _target(Leased)
fenced = _target(Fenced)
