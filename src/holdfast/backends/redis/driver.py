"""Two drivers: one waits for sockets, one awaits them. Nothing else differs between the APIs.

All that is to be done is written once, as generators that yield `Ask`s (`command_steps.py`); a driver
carries them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
import redis.asyncio as aio
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.durability import Assessment, Seen
from holdfast.backends.redis.errors import Lost, unreachable
from holdfast.runner import StepsOf, run, run_async

T = TypeVar("T")
SENTINEL_TIMEOUT_S = 2.0
"""Sentinels have little to do: one that does not answer by then hangs, and the others know."""
ENGINE_SAID = (
    redis.exceptions.ResponseError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.AuthenticationError,
)


class Link:
    """One connection to one engine; `assessment` is what that engine was last seen to keep."""

    __slots__ = (
        "assessment", "checked_s", "connection", "fence", "has_waitaof", "recheck", "seen", "server", "unchanged",
    )  # fmt: skip

    def __init__(self, server: Server, connection: Any) -> None:
        self.server, self.connection = server, connection
        self.assessment: Assessment | None = None
        self.seen = Seen(None, None)
        self.recheck = self.fence = b""
        self.unchanged: Any = None
        self.checked_s = 0.0
        self.has_waitaof = False


@dataclass(slots=True)
class Open:
    """Ask for a new connection; a failure is definite, since nothing has been sent."""

    server: Server
    sentinel: bool = False


@dataclass(slots=True)
class Talk:
    """Ask to send these bytes and read so many replies; a `Lost` stands where none came."""

    link: Link
    payload: bytes
    replies: int


@dataclass(slots=True)
class Fresh:
    """Ask whether an idle connection is still good: the engine may have gone in between."""

    link: Link


@dataclass(slots=True)
class Shut:
    """Ask to close a connection; gently is with a farewell, which TLS has."""

    link: Link
    gently: bool = False


@dataclass(slots=True)
class Rest:
    """Ask to wait a little."""

    seconds: float


Ask = Open | Talk | Fresh | Shut | Rest
Steps = StepsOf[Ask, T]


def talk(link: Link, payload: bytes, replies: int) -> Steps[list[Any]]:
    """One exchange; a connection whose exchange was interrupted is not used again."""
    try:
        answer: list[Any] = yield Talk(link, payload, replies)
    except GeneratorExit:
        raise  # the runner was interrupted itself, and does no more steps
    except BaseException:
        yield Shut(link)
        raise
    return answer


def arguments(address: Address, ask: Open) -> dict[str, Any]:
    """How the driver connects: without any retry of its own, since a resent write may be a second one."""
    common: dict[str, Any] = {
        "socket_timeout": address.reply_timeout_s,
        "socket_connect_timeout": address.connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
    }
    if not ask.sentinel or address.sentinel_auth:
        common |= {"username": address.username, "password": address.password}
    if ask.sentinel:
        for name in ("socket_timeout", "socket_connect_timeout"):
            common[name] = min(common[name], SENTINEL_TIMEOUT_S)
    else:
        common["db"] = address.db
    if ask.server.path:
        return common | {"path": ask.server.path}
    tls = dict(address.tls_options) if address.tls else {}
    return common | tls | {"host": ask.server.host, "port": ask.server.port}


class Driver:
    """Carries out asks by waiting."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def run(self, steps: Steps[T]) -> T:
        """Carry steps out to their end."""
        return run(steps, self._carry_out)

    def _carry_out(self, ask: Ask) -> Any:
        match ask:
            case Talk():
                return self._talk(ask)
            case Open():
                return self._open(ask)
            case Fresh():
                return self._is_fresh(ask.link)
            case Shut():
                return ask.link.connection.disconnect()
            case Rest():
                return time.sleep(ask.seconds)

    def _open(self, ask: Open) -> Link:
        kind: Any = redis.SSLConnection if self._address.tls else redis.Connection
        kind = redis.UnixDomainSocketConnection if ask.server.path else kind
        connection = kind(**arguments(self._address, ask))
        try:
            connection.connect()
        except (redis.RedisError, OSError) as error:
            raise unreachable(error, str(ask.server)) from error
        return Link(ask.server, connection)

    def _talk(self, ask: Talk) -> list[Any]:
        replies: list[Any] = []
        connection = ask.link.connection
        try:
            connection.send_packed_command([ask.payload], check_health=False)
            while len(replies) < ask.replies:
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except redis.exceptions.ResponseError as error:
                    replies.append(error)
        except (redis.RedisError, OSError) as error:
            connection.disconnect()
            _note_loss(replies, error, ask.replies)
        return replies

    def _is_fresh(self, link: Link) -> bool:
        try:
            return not link.connection.can_read(timeout=0)
        except (redis.RedisError, OSError):
            return False


class AsyncDriver:
    """Carries out asks by awaiting."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def run(self, steps: Steps[T]) -> T:
        """Carry steps out to their end."""
        return await run_async(steps, self._carry_out)

    async def _carry_out(self, ask: Ask) -> Any:
        match ask:
            case Talk():
                return await self._talk(ask)
            case Open():
                return await self._open(ask)
            case Fresh():
                return await self._is_fresh(ask.link)
            case Shut():
                return await self._shut(ask)
            case Rest():
                return await asyncio.sleep(ask.seconds)

    async def _open(self, ask: Open) -> Link:
        kind: Any = aio.SSLConnection if self._address.tls else aio.Connection
        kind = aio.UnixDomainSocketConnection if ask.server.path else kind
        connection = kind(**arguments(self._address, ask))
        try:
            await connection.connect()
        except (redis.RedisError, OSError) as error:
            raise unreachable(error, str(ask.server)) from error
        return Link(ask.server, connection)

    async def _talk(self, ask: Talk) -> list[Any]:
        replies: list[Any] = []
        connection = ask.link.connection
        try:
            await connection.send_packed_command([ask.payload], check_health=False)
            while len(replies) < ask.replies:
                try:
                    replies.append(await connection.read_response(disable_decoding=True))
                except redis.exceptions.ResponseError as error:
                    replies.append(error)
        except (redis.RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            _note_loss(replies, error, ask.replies)
        return replies

    async def _shut(self, ask: Shut) -> None:
        with contextlib.suppress(redis.RedisError, OSError):
            await ask.link.connection.disconnect(nowait=not ask.gently)

    async def _is_fresh(self, link: Link) -> bool:
        """Ask the kernel: the event loop may not have looked since the engine went away."""
        connection = link.connection
        if not connection.is_connected:
            return False
        socket = connection._writer.get_extra_info("socket")  # noqa: SLF001 - nothing public tells
        if socket is None or socket.fileno() < 0:
            return False
        readable = select.poll()
        readable.register(socket.fileno(), select.POLLIN)
        return not readable.poll(0)


def _note_loss(replies: list[Any], error: Exception, wanted: int) -> None:
    """The reply that failed is what the engine said, if it said something; the rest never came."""
    if isinstance(error, ENGINE_SAID):
        replies.append(error)
    lost = Lost(f"{type(error).__name__}: {error}")
    lost.__cause__ = error
    replies += [lost] * (wanted - len(replies))
