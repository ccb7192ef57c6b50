"""A TCP proxy of our own on loopback: delays, cuts, refuses, goes silent, swallows a reply.

    with Proxy(engine.url) as proxy:
        store = open_store(proxy.url)
        lost = proxy.swallow_reply(match=b"EVALSHA")
        ...                              # the store writes, and hears nothing
        lost.landed()                    # proof: the engine got the request and answered it

It runs on a thread of its own, so sync and async clients, in this process or another, can use
it, and its verbs may be called from any thread. It is byte-level: Redis, PostgreSQL and HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import FaultNotProven, UsageError, VerifyError
from holdfast.verify.blocks import Block
from holdfast.verify.faults.proxy_links import (
    Armed,
    Counters,
    Direction,
    Trap,
    Wire,
    established,
    half_close,
)
from holdfast.verify.proof import Evidence

VERB_TIMEOUT_S: Final = 10.0
"""How long a verb may take."""
DELAY_S_MAX: Final = 3600.0
_POLL_S: Final = 0.001
_PORTS: Final = {"redis": 6379, "postgresql": 5432, "postgres": 5432, "http": 80}
_TRAPS: Final = {
    "swallow_reply": "lost-ack",
    "swallow_request": "lost-request",
    "at_reply": "at-reply",
}
"""What each trap is called as a fault."""
_CLOSING_STATES: Final = frozenset({4, 5, 6, 7, 9, 11})
"""TCP states in which our FIN is on its way or has arrived (linux/tcp_states.h)."""

_T = TypeVar("_T")


class Proxy(Block):
    """Stands between a client and an engine. Plain forwarding until a verb says otherwise."""

    def __init__(self, target: str) -> None:
        """Stand before `target`: a URL with a host, such as `redis://127.0.0.1:6379/0`."""
        self._target = urlsplit(target)
        self._address, self._family = _resolve(self._target)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None

    @property
    def host(self) -> str:
        """Where it listens: loopback only."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port it listens on; the same from `start` to `close`, also while refusing."""
        return self._running().port

    @property
    def url(self) -> str:
        """The target's URL with the proxy's host and port in it."""
        credentials, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{credentials}{at}{self.host}:{self.port}").geturl()

    @property
    def counters(self) -> Counters:
        """Connections, requests in flight and bytes, as of now."""
        wire = self._running()
        return self._call(_now(wire.snapshot))

    def start(self) -> Self:
        """Listen and forward. Starting a started proxy does nothing."""
        if self._thread is None:
            ready = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(ready,), name="holdfast-proxy", daemon=True
            )
            self._thread.start()
            if not ready.wait(VERB_TIMEOUT_S):
                raise VerifyError("the proxy did not start")
        return self

    def close(self) -> None:
        """Cut what is open and give the port back. Closing a closed proxy does nothing."""
        if self._thread is not None and self._loop is not None:
            self._call(self._running().close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(VERB_TIMEOUT_S)
            self._thread = self._loop = self._wire = None

    def heal(self) -> None:
        """Forward plainly again. What was held goes on its way, as TCP would send it again."""
        self._call(_now(self._heal))

    def delay(self, seconds: float, *, direction: Direction | None = None) -> Armed:
        """Hold every chunk for so long, both ways or one; lands when a chunk was held."""
        if not 0 < seconds <= DELAY_S_MAX:
            raise UsageError(f"a delay lies between 0 and {DELAY_S_MAX:g} s, not {seconds!r}")
        armed = Armed("delay")
        self._call(_now(self._set_delay, seconds, direction, armed))
        return armed

    def black_hole(self) -> Armed:
        """Pass nothing on, close nothing; lands when bytes or a connection vanished in it.

        A real partition does the same. After `heal` the held bytes arrive late, also those of
        a client that has long given up.
        """
        armed = Armed("black-hole")
        self._call(_now(self._set_hole, armed))
        return armed

    def swallow_reply(self, *, match: bytes | None = None, passes: int = 0) -> Armed:
        """Forward the next request, drop the engine's reply to it and cut the connection.

        The honest source of "unknown": the engine did what it was asked and the client cannot
        know. `match` picks the request by bytes that it contains, so that a handshake is not
        mistaken for it. A driver that sends a statement in rounds (asyncpg prepares it first)
        makes several requests of it: match the last, or let as many as `passes` go by. Lands once.
        """
        return self._lay("swallow_reply", match, passes=passes)

    def swallow_request(
        self, *, match: bytes | None = None, keep: float = 0.0, passes: int = 0
    ) -> Armed:
        """Drop the next request and cut: to the client the same "unknown", to the engine nothing.

        With `keep` the engine gets that part of it first, so that it is cut in the middle.
        """
        if not 0 <= keep < 1:
            raise UsageError(f"keep: a part from 0 up to, and without, 1, not {keep!r}")
        return self._lay("swallow_request", match, passes=passes, keep=keep)

    def at_reply(self, act: Callable[[bytes], object], *, match: bytes | None = None) -> Armed:
        """Call `act` with the reply to the next request, before the client gets it; lands once.

        Between the engine's word and the client's knowledge of it: what was acknowledged then
        has to be there, whatever `act` does to the engine.
        """
        return self._lay("at_reply", match, act)

    def cut(self, *, reset: bool = True) -> Evidence:
        """End every open connection now, by RST or else by FIN; proven by the kernel's table."""
        return self._call(self._cut(reset=reset))

    def half_close(self, *, direction: Direction = "to_client") -> Evidence:
        """Send FIN one way on every open connection; the other way goes on."""
        return self._call(_now(self._half_close, direction))

    def refuse(self) -> Evidence:
        """Refuse new connections and leave the open ones; proven by a refused one of our own."""
        wire = self._running()
        self._call(wire.refuse())
        with socket.socket() as probe:
            probe.settimeout(VERB_TIMEOUT_S)
            code = probe.connect_ex((self.host, wire.port))
        if code == 0:
            raise FaultNotProven(f"refuse: a new connection to port {wire.port} was taken")
        return Evidence(
            fault="refuse",
            seen=f"a new connection to port {wire.port} was refused (errno {code})",
            facts={"errno": code, "open": len(wire.links)},
        )

    def _enter(self) -> object:
        return self.start()

    def _run(self, ready: threading.Event) -> None:
        """The thread: one event loop, until `close` stops it."""
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._open())
            ready.set()
            self._loop.run_forever()

    async def _open(self) -> None:
        self._wire = Wire(self._address, self._family)
        self._wire.listen()

    def _running(self) -> Wire:
        if self._wire is None:
            raise UsageError("the proxy is not started")
        return self._wire

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a verb on the proxy's loop and wait for it, with a limit."""
        if self._loop is None:
            work.close()
            raise UsageError("the proxy is not started")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(VERB_TIMEOUT_S)

    def _heal(self) -> None:
        wire = self._running()
        wire.delay_s = {"to_engine": 0.0, "to_client": 0.0}
        wire.armed_delay = wire.armed_hole = wire.trap = None
        wire.flowing.set()
        wire.listen()

    def _set_delay(self, seconds: float, direction: Direction | None, armed: Armed) -> None:
        wire = self._running()
        ways: tuple[Direction, ...] = (direction,) if direction else ("to_engine", "to_client")
        wire.delay_s |= dict.fromkeys(ways, seconds)
        wire.armed_delay = armed

    def _set_hole(self, armed: Armed) -> None:
        wire = self._running()
        wire.armed_hole = armed
        wire.flowing.clear()

    def _lay(
        self,
        kind: Literal["swallow_reply", "swallow_request", "at_reply"],
        match: bytes | None,
        act: Callable[[bytes], object] | None = None,
        passes: int = 0,
        keep: float = 0.0,
    ) -> Armed:
        if match == b"":
            raise UsageError("match: give at least one byte, or None for any request")
        armed = Armed(_TRAPS[kind])
        trap = Trap(kind=kind, match=match, armed=armed, act=act, passes=passes, keep=keep)
        self._call(_now(self._set_trap, trap))
        return trap.armed

    def _set_trap(self, trap: Trap) -> None:
        self._running().trap = trap

    async def _cut(self, *, reset: bool) -> Evidence:
        wire = self._running()
        links = list(wire.links)
        if not links:
            raise FaultNotProven("cut: no connection was open")
        in_flight = sum(link.in_flight for link in links)
        ports = {link.client_port for link in links}
        await wire.end(links, abort=reset)
        await _until_gone(ports, wire.port)
        return Evidence(
            fault="cut",
            seen=f"{len(links)} connections were cut, {in_flight} with a request in flight",
            facts={"connections": len(links), "in_flight": in_flight, "reset": reset},
        )

    def _half_close(self, direction: Direction) -> Evidence:
        wire = self._running()
        in_flight = sum(link.in_flight for link in wire.links)
        states = [half_close(link, direction) for link in wire.links]
        shut = sum(state in _CLOSING_STATES for state in states)
        if not shut:
            raise FaultNotProven(f"half-close: of {len(states)} connections none was open")
        return Evidence(
            fault="half-close",
            seen=f"FIN was sent {direction} on {shut} connections",
            facts={"connections": shut, "in_flight": in_flight, "direction": direction},
        )


async def _until_gone(client_ports: set[int], proxy_port: int) -> None:
    deadline = time.monotonic() + VERB_TIMEOUT_S / 2
    while alive := established(client_ports, proxy_port):
        if time.monotonic() > deadline:
            raise FaultNotProven(f"cut: the kernel still shows connections from ports {alive}")
        await asyncio.sleep(_POLL_S)


async def _now(verb: Callable[..., _T], *args: Any) -> _T:
    """A plain function as a verb of the loop."""
    return verb(*args)


def _resolve(target: SplitResult) -> tuple[tuple[str, int], socket.AddressFamily]:
    """The engine's address, looked up once."""
    if target.hostname is None:
        raise UsageError(
            f"a proxy needs a URL with a host, as in redis://127.0.0.1:6379: {target.geturl()!r}"
        )
    port = target.port or _PORTS.get(target.scheme.partition("+")[0])
    if port is None:
        raise UsageError(f"which port? {target.geturl()!r} does not say")
    try:
        found = socket.getaddrinfo(target.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"no such host: {target.hostname}") from error
    family, _, _, _, address = found[0]
    return (str(address[0]), int(address[1])), family
