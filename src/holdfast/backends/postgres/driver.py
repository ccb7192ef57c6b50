"""One connection, for the sync and the async API: every answer within a bound, nothing kept in between.

Each statement is a transaction of its own (autocommit), and none is prepared on the server by
name. So a bouncer in transaction mode may hand every statement to another backend; the plans
worth keeping are kept by the functions of the schema, inside the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import ConnStatus, TransactionStatus

from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.errors import ReplyTimeout, mapped, unreachable
from holdfast.backends.postgres.hosts import Drop, Hosts, Position, Rest, read_position
from holdfast.backends.postgres.statements import SQL
from holdfast.errors import HoldfastError
from holdfast.runner import run, run_async

T = TypeVar("T")

_OPEN: Final[dict[str, Any]] = {"autocommit": True, "prepare_threshold": None}
_POSITION: Final = SQL["opened"].encode()
_SYSTEM: Final = SQL["system"].encode()
_MAY_NOT: Final = psycopg.errors.InsufficientPrivilege
IDLE_S_MAX: Final = 60.0
"""A connection idle for longer may have been cut by something in between without a word."""


class _Watched:
    """What both kinds of connection have besides psycopg's own."""

    reply_timeout_s: float = 30.0
    warned: str = ""
    """What the server warned of since this was last emptied; a write of ours gives no warnings."""
    idle_since_s: float = 0.0
    opened_s: float = 0.0
    position: Position | None = None
    """Where the log of the primary was when this was opened; None on a standby."""
    system: str | None = None
    """Its database cluster, where the URL names several servers and the role may ask."""

    def __del__(self, *_: Any) -> None:
        """An interrupt may drop a connection before anybody can close it; then libpq does."""

    def note(self, notice: psycopg.errors.Diagnostic) -> None:
        """Keep a warning: a commit that no standby confirmed is announced by nothing else."""
        if notice.severity_nonlocalized == "WARNING":
            self.warned = notice.message_primary or "warning"


class Link(_Watched, psycopg.Connection[Any]):
    """For the sync API."""

    def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
        """As psycopg's, with an end."""
        return super().wait(_bounded(gen, self.reply_timeout_s), *args, **settings)


class AsyncLink(_Watched, psycopg.AsyncConnection[Any]):
    """For the async API."""

    async def wait(self, gen: Any, *args: Any, **settings: Any) -> Any:
        """As psycopg's, with an end."""
        return await super().wait(_bounded(gen, self.reply_timeout_s), *args, **settings)


def open_link(address: Address, operation: str, conninfo: dict[str, Any] | None = None) -> Link:
    """A new connection; `EngineUnreachable` says why there is none."""
    try:
        link = Link.connect(**(conninfo or address.conninfo), **_OPEN)
    except (psycopg.Error, OSError) as error:
        raise _not_opened(address, error, operation) from None
    _set_up(link, address)
    return link


async def _open_link_async(
    address: Address, operation: str, conninfo: dict[str, Any] | None = None
) -> AsyncLink:
    try:
        link = await AsyncLink.connect(**(conninfo or address.conninfo), **_OPEN)
    except (psycopg.Error, OSError) as error:
        raise _not_opened(address, error, operation) from None
    _set_up(link, address)
    return link


def open_to(hosts: Hosts, operation: str) -> Link:
    """A new connection to the primary among these, or to this replica."""
    if hosts.is_replica:
        return open_link(hosts.address, operation)

    def do(step: Any) -> Link | None:
        if isinstance(step, Rest):
            time.sleep(step.seconds)
        elif isinstance(step, Drop):
            step.link.close()
        else:
            return _positioned(open_link(hosts.address, operation, step.conninfo), hosts, operation)
        return None

    link: Link = run(hosts.find(operation), do)
    return link


async def open_to_async(hosts: Hosts, operation: str) -> AsyncLink:
    """The same, awaited."""
    if hosts.is_replica:
        return await _open_link_async(hosts.address, operation)

    async def do(step: Any) -> AsyncLink | None:
        if isinstance(step, Rest):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Drop):
            await step.link.close()
        else:
            link = await _open_link_async(hosts.address, operation, step.conninfo)
            return await _positioned_async(link, hosts, operation)
        return None

    link: AsyncLink = await run_async(hosts.find(operation), do)
    return link


def _positioned(link: Link, hosts: Hosts, operation: str) -> Link:
    try:
        [(text,)] = link.execute(_POSITION).fetchall()
        if len(hosts.members) > 1:
            with contextlib.suppress(_MAY_NOT):
                [(link.system,)] = link.execute(_SYSTEM).fetchall()
    except psycopg.Error as error:
        link.close()
        raise mapped(error, operation, writes=False) from error
    link.position = read_position(text) if text else None
    return link


async def _positioned_async(link: AsyncLink, hosts: Hosts, operation: str) -> AsyncLink:
    try:
        [(text,)] = await (await link.execute(_POSITION)).fetchall()
        if len(hosts.members) > 1:
            with contextlib.suppress(_MAY_NOT):
                [(link.system,)] = await (await link.execute(_SYSTEM)).fetchall()
    except psycopg.Error as error:
        await link.close()
        raise mapped(error, operation, writes=False) from error
    link.position = read_position(text) if text else None
    return link


def _set_up(link: Link | AsyncLink, address: Address) -> None:
    link.reply_timeout_s = address.reply_timeout_s
    link.opened_s = time.monotonic()
    link.add_notice_handler(link.note)


def _not_opened(address: Address, error: Exception, operation: str) -> HoldfastError:
    """The driver's words, cleaned, and as cause a clean copy: the original may hold a password."""
    words = " ".join(address.scrub(str(error)).split())
    clean = type(error)(words) if words != str(error) else error
    return unreachable(clean, operation, words)


def _bounded(gen: Generator[Any, Any, T], timeout_s: float) -> Generator[Any, Any, T]:
    """The same exchange with the server, given up after a time.

    psycopg looks in about every 0.1 s even when nothing arrives, with nothing in hand.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline_s:
                raise ReplyTimeout(f"no answer within {timeout_s:g} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def is_fit(link: Link | AsyncLink) -> bool:
    """Whether an idle connection can be used: the server has said nothing on it meanwhile.

    What a server says unasked is nearly always that it is going, or gone. Only if that was
    looked at, a failure after sending means "unknown"; a connection that died with the
    server before must not cost anybody a write.
    """
    if link.closed or time.monotonic() - link.idle_since_s > IDLE_S_MAX:
        return False
    poll = select.poll()
    poll.register(link.fileno(), select.POLLIN)
    return not poll.poll(0) and link.pgconn.status == ConnStatus.OK


def is_broken(link: Link | AsyncLink, error: BaseException) -> bool:
    """Whether a connection is of no more use after an error; a refused statement leaves it whole."""
    whole = isinstance(error, Exception) and not link.closed
    return not (whole and link.pgconn.transaction_status == TransactionStatus.IDLE)
