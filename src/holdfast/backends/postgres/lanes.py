"""Group commit: appends that wait share the next statement, and so one commit and one sync.

A commit holds the session's row until it is on the disk, so appends to one session cannot
overlap in the server. Instead of waiting there, each with a connection of its own, they wait
here. An append goes at once if nobody writes to its session and few statements are under way.
When one of those is back, it takes along whatever has queued up for sessions that are free.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from holdfast.backends.postgres.mapping import BACKEND
from holdfast.commands import Append
from holdfast.errors import HoldfastError, OutcomeUnknown

UNDER_WAY_MAX: Final = 3
"""Statements at a time: enough to keep the server busy, few enough to let groups form."""
SLOW_S: Final = 0.1
"""One that takes longer waits for something else than the disk, and is no longer counted."""
GROUP_MAX: Final = 256
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024


class Pending:
    """One append on its way: then its reply or its error, or the lead of a group that it is in."""

    __slots__ = ("abandoned", "again", "alone", "command", "group", "outcome")

    def __init__(self, command: Append) -> None:
        self.command = command
        self.again = False
        """Its session was held by somebody else: nothing of it is written, and it goes again."""
        self.alone = False
        """Then it waits for that session in the server, together with no other one."""
        self.abandoned = False
        """Its caller has gone (Ctrl-C), so it must not be sent again, nor lead others."""
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
            return False
        self._woken.clear()
        return True


class Lanes:
    """Who goes now, who waits, and who takes whom along."""

    def __init__(self) -> None:
        self._queue: deque[Pending] = deque()
        self._busy: set[bytes] = set()
        self._under_way: dict[Pending, float] = {}
        """The leader of each group -> when it began."""
        self._changing = threading.Lock()

    def enter(self, pending: Pending) -> bool:
        """True if it is to go now, alone; otherwise it waits to be woken."""
        with self._changing:
            if pending.command.session in self._busy or not self._has_room():
                self._queue.append(pending)
                return False
            self._begin([pending])
            return True

    def leave(self, group: Sequence[Pending], *, interrupted: bool = False) -> bool:
        """A group is back: wake those who have an outcome, and send those who wait on their way.

        Whoever is to go again queues in front. True if that is the leader, who calls this;
        an interrupted leader goes nowhere, and leaves those behind it without an outcome.
        """
        again = (
            []
            if interrupted
            else [pending for pending in group if pending.again and not pending.abandoned]
        )
        with self._changing:
            del self._under_way[group[0]]
            self._busy.difference_update(pending.command.session for pending in group)
            for pending in again:
                pending.again, pending.alone, pending.group = False, True, ()
            self._queue.extendleft(reversed(again))
            leaders = self._send()
        for leader in leaders:
            leader.wake()
        for pending in group[1:]:
            if pending not in again:
                pending.wake()
        return group[0] in again

    def withdraw(self, pending: Pending) -> bool:
        """Take one back that still waits; False if it is under way already."""
        with self._changing:
            if pending not in self._queue:
                return False
            self._queue.remove(pending)
            return True

    def abandon(self, pending: Pending) -> None:
        """Its caller stopped waiting: take it back if it waits, or pass on the lead that it got."""
        with self._changing:
            pending.abandoned = True
            if pending in self._queue:
                self._queue.remove(pending)
            if pending.group:
                del self._under_way[pending]
                self._busy.difference_update(one.command.session for one in pending.group)
                self._queue.extendleft(reversed(pending.group[1:]))
                pending.group = ()
            leaders = self._send()
        for leader in leaders:
            leader.wake()

    def nudge(self) -> None:
        """Called by one that has waited for long: perhaps what is under way is merely stuck."""
        with self._changing:
            leaders = self._send()
        for leader in leaders:
            leader.wake()

    def _has_room(self) -> bool:
        if len(self._under_way) < UNDER_WAY_MAX:
            return True
        recent_s = time.monotonic() - SLOW_S
        return sum(begun_s > recent_s for begun_s in self._under_way.values()) < UNDER_WAY_MAX

    def _begin(self, group: list[Pending]) -> None:
        self._under_way[group[0]] = time.monotonic()
        self._busy.update(pending.command.session for pending in group)
        group[0].group = group

    def _send(self) -> list[Pending]:
        leaders = []
        while self._has_room() and (group := self._take()):
            self._begin(group)
            leaders.append(group[0])
        return leaders

    def _take(self) -> list[Pending]:
        """Of those who wait, all that one statement should carry; sessions in order."""
        group: list[Pending] = []
        stay: deque[Pending] = deque()
        size = 0
        for pending in self._queue:
            if pending.command.session in self._busy or (group and not _fits(group, pending, size)):
                stay.append(pending)
            else:
                group.append(pending)
                size += _size(pending)
        self._queue = stay
        group.sort(key=lambda pending: pending.command.session)
        return group


def _fits(group: list[Pending], pending: Pending, size: int) -> bool:
    """Whether it may go along. One that is alone goes with its own session only."""
    if len(group) >= GROUP_MAX or size + _size(pending) > GROUP_BYTES_MAX:
        return False
    if pending.alone or group[0].alone:
        return pending.command.session == group[0].command.session
    return True


def _size(pending: Pending) -> int:
    return sum(map(len, pending.command.records))
