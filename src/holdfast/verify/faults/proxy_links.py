"""The asyncio side of the proxy: links between clients and the engine, and what befalls them.

Everything here runs on the proxy's own event loop. It knows bytes and connections and no
protocol, so it serves Redis, PostgreSQL and HTTP alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from holdfast.errors import FaultNotProven
from holdfast.linux import connections
from holdfast.verify.proof import Evidence

Direction = Literal["to_engine", "to_client"]
CHUNK_BYTES: Final = 65536
REPLY_QUIET_S: Final = 0.01
"""A reply has ended when the engine sent nothing for so long."""
ENGINE_CONNECT_TIMEOUT_S: Final = 10.0
_BACKLOG: Final = 512
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
REPLY_SHOWN_BYTES: Final = 200


@dataclass(slots=True)
class Counters:
    """What passed, what was dropped and what is held, since the proxy started."""

    connections: int = 0
    open: int = 0
    in_flight: int = 0
    bytes_to_engine: int = 0
    bytes_to_client: int = 0
    bytes_dropped: int = 0
    bytes_held: int = 0
    chunks_delayed: int = 0
    engine_unreachable: int = 0


@dataclass(slots=True, eq=False)
class Link:
    """One client's connection and the engine's connection that answers it."""

    client: socket.socket
    client_port: int
    engine: socket.socket | None = None
    in_flight: bool = False
    """The engine was sent bytes and has not answered since."""
    shut: set[Direction] = field(default_factory=set)
    trap: Trap | None = None
    tail: bytes = b""
    abort: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Trap:
    """A one-shot fault that lies in wait for a request."""

    kind: Literal["swallow_reply", "swallow_request", "at_reply"]
    match: bytes | None
    armed: Armed
    act: Callable[[bytes], object] | None = None
    """What to do with the reply in hand, before the client gets it; in a thread of its own."""
    passes: int = 0
    """So many requests go by before it."""
    keep: float = 0.0
    """The part of a lost request that still goes to the engine."""
    request_bytes: int = 0
    pipelined: bool = False
    """An earlier request of this client was still unanswered: its reply is dropped as well."""

    def takes(self, link: Link, chunk: bytes) -> bool:
        """Whether this request is the one; a pattern may straddle two chunks."""
        if self.match is None:
            return True
        text = link.tail + chunk
        link.tail = text[-(len(self.match) - 1) :] if len(self.match) > 1 else b""
        return self.match in text


class Armed:
    """A fault that is set and lands when a client meets it. Ask `landed` before you judge."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self._met = threading.Event()
        self._evidence: Evidence | None = None

    def met(self, seen: str, **facts: Any) -> None:
        """Note the proof; only the first one counts."""
        if not self._met.is_set():
            self._evidence = Evidence(fault=self.fault, seen=seen, facts=facts)
            self._met.set()

    @property
    def is_landed(self) -> bool:
        """Whether a client has met it by now."""
        return self._met.is_set()

    def landed(self, *, timeout_s: float = 5.0) -> Evidence:
        """The proof, or `FaultNotProven` if no client met the fault in time.

        It waits, so async code calls it by `asyncio.to_thread`, or after the client's answer.
        """
        self._met.wait(timeout_s)
        if self._evidence is None:
            raise FaultNotProven(
                f"{self.fault} was set and within {timeout_s:g} s no client met it"
            )
        return self._evidence


class Cut(Exception):
    """End this link now."""


class Wire:
    """Accepts clients, forwards their bytes, and does to them what the rules say."""

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily) -> None:
        self.address, self.family = address, family
        self.counters = Counters()
        self.links: set[Link] = set()
        self.delay_s: dict[Direction, float] = {"to_engine": 0.0, "to_client": 0.0}
        self.armed_delay: Armed | None = None
        self.armed_hole: Armed | None = None
        self.trap: Trap | None = None
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._hold = _bound(0)
        self.port: int = self._hold.getsockname()[1]
        self._listener: socket.socket | None = None

    def snapshot(self) -> Counters:
        """The counters of this moment."""
        return replace(
            self.counters,
            open=len(self.links),
            in_flight=sum(link.in_flight for link in self.links),
        )

    def listen(self) -> None:
        """Take new connections; does nothing if it already does."""
        if self._listener is None:
            # The port stays bound by `_hold` for the proxy's whole life, so that nobody else
            # can take it while connections are refused.
            self._listener = _bound(self.port)
            self._listener.listen(_BACKLOG)
            # No task that accepts: cancelled in the wrong turn, it would drop an open socket.
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    async def refuse(self) -> None:
        """Take no new connections: the kernel answers them with RST."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            # A forked child may hold a copy of this descriptor: shutdown reaches it, close not.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    async def end(self, links: list[Link], *, abort: bool) -> None:
        """Close these links on both sides and return when they are closed."""
        for link in links:
            link.abort = abort
            if link.task is not None:
                link.task.cancel()
        tasks = [link.task for link in links if link.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """End everything and give the port back."""
        await self.refuse()
        await self.end(list(self.links), abort=True)
        self._hold.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, peer = listener.accept()
        except OSError:
            return  # it has gone again
        client.setblocking(False)
        link = Link(client=client, client_port=peer[1])
        self.counters.connections += 1
        self.links.add(link)
        link.task = asyncio.create_task(self._serve(link))
        # Not at the end of the task itself, which does not even begin if it is cancelled at once.
        link.task.add_done_callback(lambda _: self._put_away(link))

    def _put_away(self, link: Link) -> None:
        self.links.discard(link)
        for end in (link.client, link.engine):
            _close(end, abort=link.abort)

    async def _serve(self, link: Link) -> None:
        """Carry one link until both directions have ended."""
        try:
            if not self.flowing.is_set() and self.armed_hole is not None:
                self.armed_hole.met("a new connection was met with silence", connections=1)
            await self.flowing.wait()
            link.engine = await self._reach_engine()
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._to_engine(link, link.engine))
                pumps.create_task(self._to_client(link, link.engine))
        except* (Cut, OSError, TimeoutError):
            link.abort = True

    async def _reach_engine(self) -> socket.socket:
        engine = socket.socket(self.family, socket.SOCK_STREAM)
        engine.setblocking(False)
        try:
            async with asyncio.timeout(ENGINE_CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(engine, self.address)
        except BaseException as error:
            self.counters.engine_unreachable += isinstance(error, OSError)
            engine.close()
            raise
        engine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return engine

    async def _to_engine(self, link: Link, engine: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await loop.sock_recv(link.client, CHUNK_BYTES):
            await self._gate("to_engine", len(chunk))
            trap = self._spring(link, chunk)
            if "to_engine" in link.shut:
                self.counters.bytes_dropped += len(chunk)
                continue
            if trap is not None and trap.kind == "swallow_request":
                await self._lose_request(trap, engine, chunk)
            link.in_flight = True
            if link.trap is not None:
                link.trap.request_bytes += len(chunk)
            await loop.sock_sendall(engine, chunk)
            self.counters.bytes_to_engine += len(chunk)
        await self.flowing.wait()
        _shutdown(engine)

    async def _to_client(self, link: Link, engine: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await loop.sock_recv(engine, CHUNK_BYTES):
            await self._gate("to_client", len(chunk))
            if link.trap is not None and link.trap.act is not None:
                await self._act(link, link.trap, link.trap.act, chunk)
            elif link.trap is not None:
                await self._swallow(link, link.trap, engine, len(chunk))
            link.in_flight = False
            if "to_client" in link.shut:
                self.counters.bytes_dropped += len(chunk)
                continue
            await loop.sock_sendall(link.client, chunk)
            self.counters.bytes_to_client += len(chunk)
        await self.flowing.wait()
        _shutdown(link.client)

    def _spring(self, link: Link, chunk: bytes) -> Trap | None:
        """The trap, if this chunk is the one it waits for; a trap springs once."""
        trap = self.trap
        if trap is None or not trap.takes(link, chunk):
            return None
        if trap.passes:
            trap.passes -= not link.in_flight  # what comes meanwhile is more of the same request
            return None
        self.trap, link.trap = None, trap
        trap.pipelined = link.in_flight
        return trap

    async def _lose_request(self, trap: Trap, engine: socket.socket, chunk: bytes) -> None:
        count, kept = len(chunk), round(len(chunk) * trap.keep)
        if kept:
            await asyncio.get_running_loop().sock_sendall(engine, chunk[:kept])
            self.counters.bytes_to_engine += kept
        self.counters.bytes_dropped += count - kept
        trap.armed.met(
            f"{count} request bytes came from the client, {kept or 'none'} of them went to the "
            "engine, and the connection was cut",
            request_bytes=count,
        )
        raise Cut

    async def _act(
        self, link: Link, trap: Trap, act: Callable[[bytes], object], chunk: bytes
    ) -> None:
        """Do it while the reply is here and nowhere else; then the client gets the reply."""
        link.trap = None
        done = await asyncio.to_thread(act, chunk)
        trap.armed.met(
            f"after {trap.request_bytes} request bytes, with the first {len(chunk)} reply bytes in "
            f"hand: {done}",
            request_bytes=trap.request_bytes,
            reply=chunk[:REPLY_SHOWN_BYTES].decode("latin-1"),
        )

    async def _swallow(self, link: Link, trap: Trap, engine: socket.socket, first: int) -> None:
        """Drop the whole reply, so that the engine surely did what it was asked, then cut."""
        dropped = first
        with contextlib.suppress(TimeoutError, OSError):
            while True:
                async with asyncio.timeout(REPLY_QUIET_S):
                    more = await asyncio.get_running_loop().sock_recv(engine, CHUNK_BYTES)
                if not more:
                    break
                dropped += len(more)
        self.counters.bytes_dropped += dropped
        link.in_flight = False
        trap.armed.met(
            f"{trap.request_bytes} request bytes went to the engine, its {dropped} reply bytes "
            "were dropped, and the connection was cut",
            request_bytes=trap.request_bytes,
            reply_bytes_dropped=dropped,
            pipelined=trap.pipelined,
        )
        raise Cut

    async def _gate(self, direction: Direction, count: int) -> None:
        """Hold a chunk as long as the rules want, and note that they did."""
        delay_s = self.delay_s[direction]
        if delay_s > 0:
            began = time.monotonic()
            await asyncio.sleep(delay_s)
            self.counters.chunks_delayed += 1
            if self.armed_delay is not None:
                held_s = time.monotonic() - began
                self.armed_delay.met(
                    f"{count} bytes {direction} were held for {held_s:.3f} s",
                    direction=direction,
                    bytes=count,
                    held_s=held_s,
                )
        if not self.flowing.is_set():
            self.counters.bytes_held += count
            if self.armed_hole is not None:
                self.armed_hole.met(
                    f"{count} bytes {direction} came in and were not passed on",
                    direction=direction,
                    bytes=count,
                )
            await self.flowing.wait()


def established(client_ports: set[int], proxy_port: int) -> set[int]:
    """Those of our clients' ports that the kernel still shows as connected to the proxy."""
    alive = {one.port for one in connections() if one.established and one.remote_port == proxy_port}
    return alive & client_ports


def half_close(link: Link, direction: Direction) -> int:
    """Send FIN one way only; returns the kernel's state of that socket afterwards."""
    link.shut.add(direction)
    end = link.client if direction == "to_client" else link.engine
    if end is None:
        return 0
    _shutdown(end)
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _shutdown(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_WR)


def _close(end: socket.socket | None, *, abort: bool) -> None:
    """Close a socket with FIN, or with RST if it is to be aborted."""
    if end is None:
        return
    if abort:
        _reset(end)
    else:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    end.close()


def _disconnect() -> Callable[[int], None]:
    libc = ctypes.CDLL(None, use_errno=True)
    nowhere = ctypes.create_string_buffer(16)  # a sockaddr of the family AF_UNSPEC

    def disconnect(descriptor: int) -> None:
        libc.connect(descriptor, nowhere, len(nowhere))

    return disconnect


_drop = _disconnect()


def _reset(end: socket.socket) -> None:
    """Send RST now. Closing would not, where a forked child holds a copy of the descriptor."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    _drop(end.fileno())
