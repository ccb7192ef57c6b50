"""Connections to one server, lent out one at a time; at most so many, and nobody waits for ever.

Not psycopg_pool: that opens connections in the background, with growing pauses while the
server is away. "Refused", "wrong password" and "too many connections" all become one time-out
there, and a server that is back is not used until the pause is over. Here a caller that needs a
connection opens it, learns at once why it fails, and finds the server as soon as it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from holdfast.backends.loops import PerLoop
from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.driver import (
    AsyncLink,
    Link,
    is_broken,
    is_fit,
    open_to,
    open_to_async,
)
from holdfast.backends.postgres.errors import BACKEND
from holdfast.backends.postgres.hosts import Hosts
from holdfast.backends.slots import Slots
from holdfast.errors import EngineUnreachable, StoreClosed


class Pool:
    """For the sync API."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.address = address = hosts.address
        self._idle: list[Link] = []
        self.slots = Slots(address.pool_max)
        self._closed = False

    def take(self, holder: object, operation: str) -> Link:
        """A connection for as long as `holder` is in `slots.held`."""
        if not self.slots.take(holder, self.address.pool_timeout_s):
            raise _all_busy(self.address, operation)
        return self._idle_one() or open_to(self._hosts, operation)

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next one who needs it."""
        link.idle_since_s = time.monotonic()
        self._idle.append(link)
        if self._closed:
            self.close()

    def after(self, link: Link, error: BaseException) -> None:
        """Keep a connection after an error, or throw it away if it broke."""
        broken = is_broken(link, error)
        self._hosts.failed(error, is_broken=broken)
        if broken:
            link.close()
        else:
            self.give_back(link)

    def close(self) -> None:
        """Close idle connections now, lent ones when they come back."""
        self._closed = True
        with contextlib.suppress(IndexError):  # other threads take, too
            while True:
                self._idle.pop().close()

    def _idle_one(self) -> Link | None:
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")
        with contextlib.suppress(IndexError):  # other threads take, too
            while True:
                link = self._idle.pop()
                if is_fit(link) and self._hosts.is_usable(link):
                    return link
                self._hosts.doubt()
                link.close()
        return None


class AsyncPool:
    """For the async API. An idle connection can be used in any event loop."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.address = address = hosts.address
        self._idle: list[AsyncLink] = []
        self._free = PerLoop(lambda: asyncio.BoundedSemaphore(address.pool_max))
        self._closed = False

    @contextlib.asynccontextmanager
    async def borrow(self, operation: str) -> AsyncIterator[AsyncLink]:
        """A connection for the length of a `with` block; one that breaks in it is thrown away."""
        free = self._free.here()
        await self._queue(free, operation)
        try:
            link = await self._idle_one() or await open_to_async(self._hosts, operation)
            try:
                yield link
            except BaseException as error:
                broken = is_broken(link, error)
                self._hosts.failed(error, is_broken=broken)
                if broken:
                    await link.close()
                else:
                    await self._give_back(link)
                raise
            await self._give_back(link)
        finally:
            free.release()

    async def close(self) -> None:
        """Close idle connections now, lent ones when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _queue(self, free: asyncio.Semaphore, operation: str) -> None:
        try:
            async with asyncio.timeout(self.address.pool_timeout_s):
                await free.acquire()
        except TimeoutError:
            raise _all_busy(self.address, operation) from None

    async def _idle_one(self) -> AsyncLink | None:
        if self._closed:
            raise StoreClosed("this store is closed; nothing was sent. Connect again")
        while self._idle:
            link = self._idle.pop()
            if is_fit(link) and self._hosts.is_usable(link):
                return link
            self._hosts.doubt()
            await link.close()
        return None

    async def _give_back(self, link: AsyncLink) -> None:
        link.idle_since_s = time.monotonic()
        self._idle.append(link)
        if self._closed:
            await self.close()


def _all_busy(address: Address, operation: str) -> EngineUnreachable:
    return EngineUnreachable(
        f"all {address.pool_max} connections of this store were busy for "
        f"{address.pool_timeout_s:g} s; nothing was sent. Try again, or raise pool_max in the URL",
        operation=operation,
        backend=BACKEND,
    )
