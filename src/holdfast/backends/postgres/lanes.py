"""Appends to one session go one after another; those that wait share the next commit.

A commit holds the session's row until it is on the disk, so appends to one session cannot
overlap in the server. Instead of waiting there, each with a connection of its own, they wait
here: the one that finds the lane free goes at once, and when it is back, all that have
queued up go together, in one statement. Sessions do not wait for one another.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from holdfast.backends.postgres.mapping import BACKEND
from holdfast.commands import Append
from holdfast.errors import HoldfastError, OutcomeUnknown

GROUP_MAX: Final = 256
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024


class Pending:
    """One append on its way: then its reply or its error, or the lead of a group that it is in."""

    __slots__ = ("command", "group", "outcome")

    def __init__(self, command: Append) -> None:
        self.command = command
        self.outcome: Any = None
        self.group: Sequence[Pending] = ()

    def wake(self) -> None:
        """Let its caller go on."""

    def result(self) -> Any:
        """The reply, or raise the error; without either nobody can know what became of it."""
        if self.outcome is None:
            raise OutcomeUnknown(
                "whoever wrote for this append was interrupted. It may or may not have happened: "
                "retry it with the same key",
                operation="append",
                backend=BACKEND,
            )
        if isinstance(self.outcome, HoldfastError):
            raise self.outcome
        return self.outcome


class ThreadPending(Pending):
    """Waits as a thread."""

    __slots__ = ("_woken",)

    def __init__(self, command: Append) -> None:
        super().__init__(command)
        self._woken = threading.Lock()
        self._woken.acquire()

    def wake(self) -> None:
        """Let the thread go on."""
        self._woken.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was woken in time."""
        return self._woken.acquire(timeout=timeout_s)


class TaskPending(Pending):
    """Waits as a task."""

    __slots__ = ("_woken",)

    def __init__(self, command: Append) -> None:
        super().__init__(command)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Let the task go on."""
        self._woken.set()

    async def wait(self, timeout_s: float) -> bool:
        """Whether it was woken in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return self._woken.is_set()
        return True


class Lanes:
    """Who goes now, who waits, and who takes whom along."""

    def __init__(self) -> None:
        self._queues: dict[bytes, deque[Pending]] = {}
        self._changing = threading.Lock()

    def enter(self, pending: Pending) -> bool:
        """True if it is to go now, alone; otherwise it waits to be woken."""
        with self._changing:
            queue = self._queues.get(pending.command.session)
            if queue is None:
                self._queues[pending.command.session] = deque()
                pending.group = (pending,)
                return True
            queue.append(pending)
            return False

    def leave(self, group: Sequence[Pending]) -> None:
        """A group is done: wake all but its leader, and give the lane to those who wait."""
        session = group[0].command.session
        with self._changing:
            follow = _take(self._queues[session])
            if not follow:
                del self._queues[session]
        if follow:
            follow[0].group = follow
            follow[0].wake()
        for pending in group[1:]:
            pending.wake()

    def withdraw(self, pending: Pending) -> bool:
        """Take one back that still waits; False if it is under way already."""
        with self._changing:
            queue = self._queues.get(pending.command.session, deque())
            if pending not in queue:
                return False
            queue.remove(pending)
            return True


def _take(queue: deque[Pending]) -> list[Pending]:
    """As many from the front as one statement should carry; at least one, if there is any."""
    group: list[Pending] = []
    size = 0
    while queue and len(group) < GROUP_MAX:
        size += sum(map(len, queue[0].command.records))
        if group and size > GROUP_BYTES_MAX:
            break
        group.append(queue.popleft())
    return group
