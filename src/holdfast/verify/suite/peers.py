"""Clients in processes of their own, so that they can be killed.

A user's `open` is often a lambda over a fixture, which no fresh interpreter could import;
only fork carries it across. A child forked from a process with threads may inherit a lock that
nobody will release, so children are forked before a test starts any thread or opens any store,
touch nothing but the target and two pipes, and leave by `_exit`: nothing that belongs to the
parent is closed or flushed twice. A child that is silent for too long is killed, and named.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

import pytest

from holdfast.verify.adapters.plain import Client
from holdfast.verify.history import Event, event_json
from holdfast.verify.suite.record import Recorded
from holdfast.verify.target import Target

WAIT_S: Final = 20.0
"""The longest that a child may take for what is asked of it."""
_CHUNK_BYTES: Final = 1 << 16

Work = Callable[[Recorded], object]


class Peer:
    """A child that opens the store, waits for `go`, does its work and ends."""

    def __init__(self, target: Target, number: int, work: Work) -> None:
        self.number = number
        self.events: list[Event] = []
        self.errors: list[str] = []
        self.ended = self.ready = False
        self._rest = b""
        orders, self._go = os.pipe()
        self._says, answers = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            os.close(self._go)  # otherwise the death of the parent would not be seen
            os.close(self._says)
            _serve(target, number, work, orders, answers)
        os.close(orders)
        os.close(answers)

    def go(self) -> None:
        """Let it begin."""
        with contextlib.suppress(BrokenPipeError):  # it died before; its end is seen elsewhere
            os.write(self._go, b"!")

    def fileno(self) -> int:
        """Where it can be heard."""
        return self._says

    def hear(self) -> None:
        """Take in what it has said; blocks only if it has said nothing."""
        chunk = os.read(self._says, _CHUNK_BYTES)
        if not chunk:
            self.ended = True
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def acks(self) -> int:
        """How many of its appends were acknowledged, as far as heard."""
        appends = {e.op for e in self.events if e.type == "invoke" and e.f == "append"}
        return sum(event.type == "ok" and event.op in appends for event in self.events)

    def acknowledged(self) -> list[str]:
        """The ids of all that it had acknowledged, as far as heard."""
        done = {event.op for event in self.events if event.type == "ok"}
        appends = [e for e in self.events if e.type == "invoke" and e.f == "append"]
        return [name for e in appends if e.op in done for name in e.messages or ()]

    def kill(self) -> Event:
        """SIGKILL it, wait until it is gone, take its last words; returns the fault as event."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        landed = self._reap() == -signal.SIGKILL
        at_ns = time.monotonic_ns()
        listen([self], lambda: self.ended)
        return Event("fault", at_ns, name="kill", landed=landed)

    def close(self) -> None:
        """Leave nothing of it behind."""
        if self.pid:
            self.kill()
        os.close(self._go)
        os.close(self._says)

    def _reap(self) -> int:
        if not self.pid:
            return 0
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def _take(self, said: dict[str, Any]) -> None:
        if "ready" in said:
            self.ready = True
        elif "error" in said:
            self.errors.append(said["error"])
        else:
            for name in ("messages", "seqs", "closes"):
                if said.get(name) is not None:
                    said[name] = tuple(said[name])
            self.events.append(Event(**said))


@contextlib.contextmanager
def peers(target: Target, works: Iterable[Work], *, begin: bool = True) -> Iterator[list[Peer]]:
    """Children that all have opened the store and begin together; gone at the end.

    Open no store and start no thread before this. With `begin=False` each waits for its `go`.
    """
    clients: list[Peer] = []
    try:
        # A number of 0 is for the parent's own client.
        clients.extend(Peer(target, number, work) for number, work in enumerate(works, 1))
        listen(clients, lambda: all(peer.ready or peer.ended for peer in clients))
        for peer in clients:
            if not peer.ready:
                said = "; ".join(peer.errors)
                pytest.fail(f"another process could not open the store: {said}", pytrace=False)
        for peer in clients if begin else ():
            peer.go()
        yield clients
    finally:
        for peer in clients:
            peer.close()


def listen(clients: list[Peer], enough: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Hear all of them until it is enough; a child that says nothing for too long is a failure."""
    deadline = time.monotonic() + within_s
    with selectors.DefaultSelector() as selector:
        for peer in clients:
            if not peer.ended:
                selector.register(peer, selectors.EVENT_READ, peer)
        while not enough():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                said = [f"{len(p.events)} events, {p.errors}" for p in clients]
                pytest.fail(f"clients did not answer within {within_s:g} s: {said}", pytrace=False)
            for key, _ in ready:
                key.data.hear()
                if key.data.ended:
                    selector.unregister(key.fileobj)


def finish(clients: list[Peer]) -> list[Event]:
    """Wait until all have done their work; their events."""
    listen(clients, lambda: all(peer.ended for peer in clients))
    return [event for peer in clients for event in peer.events]


def fork() -> int:
    """A child of this process, as `os.fork` has it."""
    with warnings.catch_warnings():
        # Later Pythons warn of threads that a test runner or a plugin has; see above.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(target: Target, number: int, work: Work, orders: int, answers: int) -> NoReturn:
    """The whole life of a child. What went wrong is said in words; it never returns."""

    def say(value: dict[str, Any]) -> None:
        # At most PIPE_BUF at once, so that SIGKILL cuts no line in two where it matters.
        rest = json.dumps(value).encode() + b"\n"
        while rest:
            rest = rest[os.write(answers, rest) :]

    code = 1
    try:
        gc.freeze()  # the parent's garbage must not be collected here: it may hold connections
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        client = Client(target)
        recorded = Recorded(client, number, lambda event: say(event_json(event)))
        say({"ready": True})
        if os.read(orders, 1):
            work(recorded)
            client.close()
        code = 0
    except BaseException as error:  # noqa: BLE001 - nothing may pass into the parent's code
        with contextlib.suppress(OSError):
            say({"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)
