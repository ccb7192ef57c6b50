"""Writes that arrive together travel together: one exchange, and one wait for the disk, for all.

Few groups are under way at an engine at a time: one, or two where each waits for a sync. Whoever finds a lane free leads: it
takes all that has queued up along. Whoever finds none queues, and is either served by a leader
or made one. So no thread of ours is needed, and a write alone is not held up by anything.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast.backends.redis.mapping import BACKEND
from holdfast.backends.redis.requests import Request
from holdfast.errors import EngineUnreachable, OutcomeUnknown

LEAD_S: Final = 0.005
GROUP_MAX: Final = 256
GROUP_BYTES_MAX: Final = 8 * 1024 * 1024


class Ticket:
    """One write that waits for its turn."""

    __slots__ = ("_woken", "leads", "request", "since_s")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.leads = False
        self.since_s = time.monotonic()
        self._woken = threading.Lock()
        self._woken.acquire()

    def wake(self) -> None:
        """Let the waiting thread look what became of its write."""
        self._woken.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was woken in time."""
        return self._woken.acquire(timeout=timeout_s)


class ThreadLanes:
    """The lanes of threads to one engine."""

    def __init__(
        self,
        carry: Callable[[Sequence[Request]], None],
        *,
        lanes: int,
        queue_timeout_s: float,
        reply_timeout_s: float,
    ) -> None:
        self._carry = carry
        self._lanes = lanes
        self._queue_timeout_s = queue_timeout_s
        # Long enough for a leader that connects, is sent elsewhere and waits for replies.
        self._outcome_timeout_s = 6 * reply_timeout_s
        self._queue: deque[Ticket] = deque()
        self._changing = threading.Lock()
        self._leaders = 0

    def run(self, request: Request) -> None:
        """Settle one write, in step with those of other threads."""
        ticket = self._queue_up(request)
        if ticket is None:
            self._lead(request)
        else:
            self._follow(ticket)

    def is_quiet(self) -> bool:
        """Whether nothing is under way."""
        return self._leaders == 0

    def _queue_up(self, request: Request) -> Ticket | None:
        """A place in the queue, or None: a lane was free, and the caller leads."""
        with self._changing:
            if self._leaders < self._lanes:
                self._leaders += 1
                return None
            ticket = Ticket(request)
            self._queue.append(ticket)
            return ticket

    def _lead(self, request: Request) -> None:
        """Carry out one's own write with what has queued up; for a moment, what comes after it too.

        Waking another thread to lead costs more than an exchange with a fast engine.
        """
        own: list[Request] = [request]
        until_s = time.monotonic() + LEAD_S
        try:
            while True:
                with self._changing:
                    group = _gather(self._queue, request)
                if not own and not group:
                    break
                self._serve(own, group)
                own = []
                if time.monotonic() > until_s:
                    break
        finally:
            self._pass_on()

    def _serve(self, own: list[Request], group: list[Ticket]) -> None:
        try:
            self._carry([*own, *(ticket.request for ticket in group)])
        finally:
            for ticket in group:
                ticket.request.settle(error=_interrupted(ticket.request))
                ticket.wake()

    def _pass_on(self) -> None:
        """Whoever has waited longest leads next; without one, the lane is free."""
        with self._changing:
            if self._queue:
                ticket = self._queue.popleft()
                ticket.leads = True
                ticket.wake()
            else:
                self._leaders -= 1

    def _follow(self, ticket: Ticket) -> None:
        try:
            woken = ticket.wait(self._queue_timeout_s)
        except BaseException:
            self._leave(ticket)
            raise
        if not woken and self._left_queue(ticket):
            ticket.request.settle(error=_not_sent(ticket.request, self._queue_timeout_s))
        elif not woken and not ticket.wait(self._outcome_timeout_s):
            ticket.request.settle(error=_interrupted(ticket.request))
        elif ticket.leads:
            self._lead(ticket.request)

    def _leave(self, ticket: Ticket) -> None:
        """The thread was interrupted: it must not take the lane with it."""
        if not self._left_queue(ticket) and ticket.leads:
            self._pass_on()

    def _left_queue(self, ticket: Ticket) -> bool:
        """Whether the write was still in the queue; now it is not."""
        with self._changing:
            try:
                self._queue.remove(ticket)
            except ValueError:
                return False
            return True


class TaskLanes:
    """The lanes of tasks to one engine, on one event loop."""

    def __init__(
        self,
        carry: Callable[[Sequence[Request]], Awaitable[None]],
        *,
        lanes: int,
        queue_timeout_s: float,
    ) -> None:
        self._carry = carry
        self._lanes = lanes
        self._queue_timeout_s = queue_timeout_s
        self._queue: deque[Ticket] = deque()
        self._futures: dict[Request, asyncio.Future[None]] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def run(self, request: Request) -> None:
        """Settle one write, in step with those of other tasks; the work is not the caller's task."""
        future = asyncio.get_running_loop().create_future()
        self._futures[request] = future
        self._queue.append(Ticket(request))
        if len(self._workers) < self._lanes:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        await future

    async def finish(self) -> None:
        """Wait until nothing is under way."""
        while self._workers:
            await asyncio.wait(self._workers)

    async def _work(self) -> None:
        while self._queue:
            first = self._queue.popleft()
            group = [first.request, *(t.request for t in _gather(self._queue, first.request))]
            try:
                if time.monotonic() - first.since_s > self._queue_timeout_s:
                    for request in group:
                        request.settle(error=_not_sent(request, self._queue_timeout_s))
                else:
                    await self._carry(group)
            except Exception as error:  # noqa: BLE001 - told to everybody whose write it was
                for request in group:
                    request.settle(error=_interrupted(request, error))
            finally:
                for request in group:
                    request.settle(error=_interrupted(request))
                    future = self._futures.pop(request)
                    if not future.done():
                        future.set_result(None)


def _gather(queue: deque[Ticket], first: Request) -> list[Ticket]:
    """What has queued up, as much as one exchange should bear."""
    group: list[Ticket] = []
    size = first.size if queue else 0
    while queue and len(group) < GROUP_MAX - 1 and size < GROUP_BYTES_MAX:
        group.append(queue.popleft())
        size += group[-1].request.size
    return group


def _not_sent(request: Request, waited_s: float) -> EngineUnreachable:
    return EngineUnreachable(
        f"every connection was busy for {waited_s:g} s, so the write was not sent. "
        "Nothing was written. Try again",
        operation=request.operation,
        backend=BACKEND,
    )


def _interrupted(request: Request, cause: Exception | None = None) -> OutcomeUnknown:
    error = OutcomeUnknown(
        "the exchange with the engine was interrupted. The write may or may not have happened: "
        "retry it with the same key",
        operation=request.operation,
        backend=BACKEND,
    )
    error.__cause__ = cause
    return error
