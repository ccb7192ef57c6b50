"""Stores on Redis that do the wrong thing when an answer is late or lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.engines import Engine
from tests.verify.check.redis_stores import SoundRedis
from tests.verify.check.stores import KEEPS, Turns

Turn = dict[str, Any]
KEYLESS = Claims(
    exactly_once=NotClaimed("there is no key"),
    expiring=NotClaimed("we keep everything"),
    recallable=NotClaimed("there is no index"),
)


class Keyless:
    """Sound: one command an append, and a driver that sends nothing twice."""

    def __init__(self, url: str) -> None:
        self._redis: Any = self.connect(url)

    def connect(self, url: str) -> Any:
        return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))

    def append(self, session: str, messages: list[Turn]) -> None:
        self._redis.rpush(_name(session), *[json.dumps(message) for message in messages])

    def history(self, session: str, limit: int | None) -> list[Turn]:
        return Turns(self._redis.lrange(_name(session), -(limit or 0), -1))

    def forget(self, session: str) -> None:
        self._redis.unlink(_name(session))

    def close(self) -> None:
        self._redis.close()


class OneByOne(Keyless):
    """Sends a batch at once, and each message of it is a command of its own."""

    def append(self, session: str, messages: list[Turn]) -> None:
        with self._redis.pipeline(transaction=False) as batch:
            for message in messages:
                batch.rpush(_name(session), json.dumps(message))
            batch.execute()


class DriverRetries(Keyless):
    """As everybody connects: the driver sends an append again whose answer was lost."""

    def connect(self, url: str) -> Any:
        place = urlsplit(url)
        return redis.Redis(
            host=place.hostname or "", port=place.port or 6379, password=place.password
        )


class Swallows(Keyless):
    """Whatever a write raises is logged at most: the caller hears "done"."""

    def append(self, session: str, messages: list[Turn]) -> None:
        with contextlib.suppress(redis.RedisError):
            super().append(session, messages)


class NotesKeyLast(SoundRedis):
    """Asks for the key, writes, and then notes the key: in between an answer may be lost."""

    def append(self, session: str, messages: list[Turn], key: str | None = None) -> None:
        if key is not None and self._redis.sismember(f"k:{_name(session)}", key):
            return
        bodies = [json.dumps(message) for message in messages]
        self._redis.rpush(_name(session), *bodies)
        if key is not None:
            self._redis.sadd(f"k:{_name(session)}", key)


class ReusesConnection(Keyless):
    """Gives up after a second and uses the connection again, on which an answer is still to come."""

    def connect(self, url: str) -> Wire:
        return Wire(url)


class Wire:
    """The protocol of Redis in thirty lines. It has one connection and one time-out."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._socket = socket.create_connection((place.hostname or "", place.port or 6379), 1.0)
        self._rest = b""
        self._send("AUTH", place.password or "")
        if self._line() != b"+OK":
            raise PermissionError("the password is refused")

    def rpush(self, key: str, *values: str) -> Any:
        return self._call("RPUSH", key, *values)

    def lrange(self, key: str, first: int, last: int) -> Any:
        found = self._call("LRANGE", key, str(first), str(last))
        if not isinstance(found, list):
            raise TypeError(f"a list was asked for, not {found!r}")
        return found

    def unlink(self, key: str) -> Any:
        return self._call("UNLINK", key)

    def close(self) -> None:
        self._socket.close()

    def _call(self, *words: str) -> Any:
        self._send(*words)
        return self._reply()

    def _send(self, *words: str) -> None:
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            raw = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
        self._socket.sendall(b"".join(parts))

    def _reply(self) -> Any:
        line = self._line()
        kind, count = line[:1], int(line[1:])
        if kind == b"*":
            return [self._reply() for _ in range(count)]
        return self._take(count + 2)[:-2] if kind == b"$" else count

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self._rest += self._socket.recv(65536)
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _take(self, count: int) -> bytes:
        while len(self._rest) < count:
            self._rest += self._socket.recv(65536)
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


class CancelledInTheMiddle:
    """All tasks share one connection, one request at a time; a task that is cancelled lets it go.

    The answer that it waited for is then the first that the next one reads, whoever that is.
    """

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = (place.hostname, place.port, place.password or "")
        self._one = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def append(self, session: str, messages: list[Turn]) -> None:
        bodies = [json.dumps(message) for message in messages]
        await self._call("RPUSH", _name(session), *bodies)

    async def history(self, session: str, limit: int | None) -> list[Turn]:
        found = await self._call("LRANGE", _name(session), str(-(limit or 0)), "-1")
        if not isinstance(found, list):
            raise TypeError(f"a list was asked for, not {found!r}")
        return Turns(found)

    async def forget(self, session: str) -> None:
        await self._call("UNLINK", _name(session))

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()

    async def _call(self, *words: str) -> Any:
        async with self._one:
            if self._streams is None:
                host, port, password = self._place
                self._streams = await asyncio.open_connection(host, port)
                await self._ask("AUTH", password)
            return await self._ask(*words)

    async def _ask(self, *words: str) -> Any:
        assert self._streams is not None
        raws = [word.encode() for word in words]
        parts = [b"$%d\r\n%s\r\n" % (len(raw), raw) for raw in raws]
        self._streams[1].write(b"*%d\r\n%s" % (len(raws), b"".join(parts)))
        return await self._reply()

    async def _reply(self) -> Any:
        assert self._streams is not None
        line = (await self._streams[0].readuntil(b"\r\n"))[:-2]
        if line[:1] == b"*":
            return [await self._reply() for _ in range(int(line[1:]))]
        if line[:1] == b"$":
            return (await self._streams[0].readexactly(int(line[1:]) + 2))[:-2]
        return line


def _name(session: str) -> str:
    return f"m:{session.encode('utf-8', 'surrogatepass').hex()}"


def _server(kind: Callable[[str], Any], claims: Claims) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        url = engine.url
        return Target(open=lambda: kind(url), engine=engine, claims=claims, name=kind.__name__)

    return target


keyless = _server(Keyless, KEYLESS)
one_by_one = _server(OneByOne, KEYLESS)
driver_retries = _server(DriverRetries, KEYLESS)
swallows = _server(Swallows, KEYLESS)
notes_key_last = _server(NotesKeyLast, KEEPS)
reuses_connection = _server(ReusesConnection, KEYLESS)
cancelled_in_the_middle = _server(CancelledInTheMiddle, KEYLESS)
