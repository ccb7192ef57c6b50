"""Connections: so many for one address, none that only waits, and a pace for what comes by them.

Headers are bounded by h11. Without this one client takes every descriptor of the process, or all of
its time: a connection and a request cost some before anybody can refuse them, h11 takes thousands of
requests from one packet, and a body may come in as many pieces as it has bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final, Self

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.chat import bounds
from holdfast.chat.request_guard import Proxies, address_of, parsed_host

_UNANSWERED: Final = (h11.IDLE, h11.SEND_RESPONSE)


class Pace:
    """When the next request of an address has its turn: some at once, then so many a second.

    Those who ask for more share what one of them alone would get, so that many addresses take no
    more of the process than one.
    """

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._clock = per_s, clock
        self._ends: OrderedDict[str, float] = OrderedDict()
        self._sharing, self._counted_s = 0, 0.0

    def delay_s(self, address: str) -> float:
        """Count one, and say how long it has to wait; `PACE_DELAY_S_MAX` at most."""
        return self.spent(address, self._cost_s(address))

    def _cost_s(self, address: str) -> float:
        """What one more request counts: if it has to wait, as many times as addresses wait."""
        first_s = self._clock() + self._ahead_s
        if first_s - self._counted_s >= bounds.PACE_COUNTED_S:
            self._sharing = sum(end_s > first_s for end_s in self._ends.values())
            self._counted_s = first_s
        waits = self._ends.get(address, 0.0) > first_s
        return max(1, self._sharing if waits else 1) / self._per_s

    def spent(self, address: str, cost_s: float = 0.0) -> float:
        """Count what was done for an address as so much of its time; the same answer."""
        now_s = self._clock()
        ends_s = max(self._ends.pop(address, now_s), now_s) + cost_s
        longest_s = now_s + self._ahead_s + bounds.PACE_DELAY_S_MAX
        self._ends[address] = min(ends_s, longest_s)
        if len(self._ends) > bounds.PEOPLE_COUNTED_MAX:
            self._ends.popitem(last=False)
        return max(0.0, self._ends[address] - now_s - self._ahead_s)

    def read(self, address: str, took_s: float, requests: float) -> float:
        """Count what was read for an address, as time and as a part of a request."""
        return self.spent(address, took_s + requests / self._per_s)

    def is_full(self, address: str) -> bool:
        """Whether one more would have to wait for longer than anybody should."""
        left_s = self._ends.get(address, 0.0) - self._clock() - self._ahead_s
        return left_s + self._cost_s(address) > bounds.PACE_DELAY_S_MAX

    @property
    def _ahead_s(self) -> float:
        return bounds.PACE_BURST / self._per_s


class Addresses:
    """How many connections each address has, and when its next request has its turn."""

    def __init__(self, per_s: float = bounds.RATE_PER_S, proxies: Proxies | None = None) -> None:
        self.open: Counter[str] = Counter()
        self.proxies = proxies or Proxies()
        """Not counted here: all who come by one have its address, and counting them is for it."""
        self.pace = Pace(per_s * bounds.PEOPLE_PER_ADDRESS * bounds.READS_PER_WRITE)

    def refuses(self, address: str, more: int = 0) -> bool:
        """Whether one more connection is too many, after `more` that are on their way."""
        there = self.open.get(address, 0) + more
        return there >= bounds.CONNECTIONS_PER_ADDRESS_MAX or self.pace.is_full(address)


class Listening(socket.socket):
    """Takes connections in, and hangs up at once on one too many: that costs next to nothing."""

    addresses: Addresses | None = None
    coming: Counter[str]
    """Taken in since there was none left: the event loop makes connections of them all together."""

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that may stay; as of a socket that does not wait, if there is none."""
        try:
            for _ in range(bounds.REFUSED_AT_ONCE):
                found, client = super().accept()
                address = _address(client[0])
                known = self.addresses
                if (
                    known is None
                    or client[0] in known.proxies
                    or not known.refuses(address, self.coming[address])
                ):
                    self.coming[address] += 1
                    return found, client
                found.close()
        except BlockingIOError:
            self.coming.clear()
            raise
        self.coming.clear()  # those are connections by the time of the next ones
        raise BlockingIOError  # others first

    def listen(self, _backlog: int = 0, /) -> None:
        """As many may wait as the system allows: who finds no room tries again after a second."""
        super().listen(socket.SOMAXCONN)

    @classmethod
    def at(cls, family: int, addresses: Addresses | None) -> Self:
        """A socket for that; not bound yet."""
        listening = cls(family, socket.SOCK_STREAM)
        listening.addresses, listening.coming = addresses, Counter()
        return listening


@functools.lru_cache(bounds.PEOPLE_COUNTED_MAX)
def _address(host: str) -> str:
    return address_of({"client": (host, 0)})


class Flow(FlowControl):
    """Nothing is read while the connection rests, whatever the application asks for."""

    rests = is_held = False

    def pause_reading(self) -> None:
        """What is read is not needed yet."""
        self.is_held = True
        super().pause_reading()

    def resume_reading(self) -> None:
        """It is needed."""
        self.is_held = False
        if not self.rests:
            super().resume_reading()

    def rest(self) -> None:
        """Until `go_on`."""
        self.rests = True
        super().pause_reading()

    def go_on(self) -> None:
        """It has rested."""
        self.rests = False
        if not self.is_held:
            super().resume_reading()


class Connection(H11Protocol):
    """One connection of uvicorn's."""

    addresses: Addresses | None = None

    address = ""
    looks: asyncio.TimerHandle | None = None
    seen: tuple[Any, int] | None = (None, 0)
    unread = b""
    flow: Flow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and let it wait for its turn."""
        super().connection_made(transport)
        self.flow = Flow(transport)
        self._look_later()
        host, port = self.client or ("", 0)
        self.client = (str(parsed_host(host) or host), port)  # as uvicorn compares it with proxies
        if self.addresses is not None and host in self.addresses.proxies:
            self.addresses = None
        if self.addresses is None:
            return
        self.address = address_of({"client": self.client})
        is_refused = self.addresses.refuses(self.address)  # again: several came in at once
        self.addresses.open[self.address] += 1
        if is_refused:
            transport.abort()
        elif delay_s := self.addresses.pace.delay_s(self.address):
            self._rest(delay_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no longer."""
        if self.looks is not None:
            self.looks.cancel()
        if self.addresses is not None:
            self.addresses.open[self.address] -= 1
            if not self.addresses.open[self.address]:
                del self.addresses.open[self.address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Keep it until its address has time left."""
        self.unread += data
        if self.flow.rests:
            return
        delay_s = self._read_some()
        if delay_s or self.unread:
            self._rest(delay_s)

    def _read_some(self) -> float:
        """Hand on a bounded bit of what came, if its address has time left; how long to rest then.

        What that takes is counted: one packet may hold thousands of chunks of a byte.
        """
        if self.addresses is not None and (delay_s := self.addresses.pace.spent(self.address)):
            return delay_s
        some, self.unread = self.unread[: bounds.READ_BYTES], self.unread[bounds.READ_BYTES :]
        begun_s = time.thread_time()
        super().data_received(some)
        took_s = time.thread_time() - begun_s
        if self.addresses is None:
            return 0.0
        pieces = bounds.PIECE_REQUESTS if len(some) < bounds.PIECE_BYTES else 0.0
        return self.addresses.pace.read(self.address, took_s * bounds.PACE_COST, pieces)

    def send_400_response(self, msg: str) -> None:
        """Nonsense after an answer has begun gets no other one, and no answer comes after this one."""
        if self.conn.our_state in _UNANSWERED:
            super().send_400_response(msg)
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """The next request on this connection, which may be here already, waits for its turn."""
        delay_s = 0.0 if self.addresses is None else self.addresses.pace.delay_s(self.address)
        if delay_s:
            # An answer may come before the end of its body; uvicorn takes what follows that at once.
            self._rest(delay_s)
            self.loop.call_later(delay_s, super().on_response_complete)
        else:
            super().on_response_complete()

    def _rest(self, for_s: float) -> None:
        self.flow.rest()
        self.loop.call_later(for_s, self._read_on)

    def _read_on(self) -> None:
        if self.transport.is_closing():
            return
        delay_s = self._read_some() if self.unread else 0.0
        if delay_s or self.unread:
            self._rest(delay_s)
        else:
            self.flow.go_on()

    def _look_later(self) -> None:
        self.looks = self.loop.call_later(bounds.REQUEST_TIMEOUT_S, self._look)

    def _look(self) -> None:
        """End it where the client has neither asked nor read anything since the last look.

        While its answer is made it has nothing to do.
        """
        unsent = self.transport.get_write_buffer_size()
        waits = self.cycle is None or self.cycle.response_complete
        if (unsent or waits) and (self.cycle, unsent) == self.seen:
            self.transport.abort()
            return
        self.seen = (self.cycle, unsent)
        self._look_later()

    def resume_writing(self) -> None:
        """The client reads."""
        self.seen = None
        super().resume_writing()


def bounded(addresses: Addresses | None) -> type[asyncio.Protocol]:
    """A protocol for uvicorn. None: nobody is counted."""
    return type("Bounded", (Connection,), {"addresses": addresses})


def raise_descriptors() -> None:
    """Let this process open as many as the system lets it: what most begin with is 1,024.

    At the last one the event loop takes nobody in for a second, honest people neither.
    """
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        is_endless = hard == resource.RLIM_INFINITY
        wanted = bounds.DESCRIPTORS if is_endless else min(hard, bounds.DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
