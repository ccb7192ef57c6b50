"""Connections: so many for one address, and none that only waits. Headers are bounded by h11."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.chat import bounds
from holdfast.chat.request_guard import address_of


def bounded(*, by_address: bool) -> type[asyncio.Protocol]:
    """A protocol for uvicorn: without it one client takes every descriptor of the process.

    Behind a proxy all come from one address, and it is the proxy that counts them.
    """
    counts: Counter[str] = Counter()

    class Bounded(H11Protocol):
        """One connection."""

        address = ""
        looks: asyncio.TimerHandle | None = None
        seen: Any = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.address = address_of({"client": self.client})
            counts[self.address] += 1
            if by_address and counts[self.address] > bounds.CONNECTIONS_PER_ADDRESS_MAX:
                transport.abort()
            else:
                self._look_later()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.looks is not None:
                self.looks.cancel()
            counts[self.address] -= 1
            if not counts[self.address]:
                del counts[self.address]
            super().connection_lost(exc)

        def _look_later(self) -> None:
            self.looks = self.loop.call_later(bounds.REQUEST_TIMEOUT_S, self._look)

        def _look(self) -> None:
            """End it where no request has come since the last look, and none is being answered."""
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self.cycle is self.seen:
                self.transport.abort()
                return
            self.seen = self.cycle
            self._look_later()

    return Bounded
