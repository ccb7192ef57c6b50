"""Group commit: writes that arrive together share one transaction and so one fsync.

A write that finds nobody writing is carried out in its own thread, without a switch. One
that finds the writer busy queues, and a thread of ours takes all that has queued up at once.
Async writes always queue, so that no event loop waits for a disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.commands import Command
from holdfast.errors import OutcomeUnknown, StoreClosed

GROUP_MAX: Final = 256
OUTCOME_TIMEOUT_S: Final = 120.0


class Pending:
    """One write on its way: a command, then either its reply or its error."""

    __slots__ = ("_woken", "command", "error", "loop_future", "reply")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.reply: Any = None
        self.error: BaseException | None = None
        self.loop_future: asyncio.Future[Any] | None = None
        self._woken: threading.Lock | None = None

    def prepare_to_wait(self) -> None:
        """Called before it is queued by a thread that is going to wait."""
        self._woken = threading.Lock()
        self._woken.acquire()

    def wait(self) -> None:
        """Return when the writer has dealt with it."""
        if self._woken is None or not self._woken.acquire(timeout=OUTCOME_TIMEOUT_S):
            self.error = OutcomeUnknown(
                f"the writer gave no answer within {OUTCOME_TIMEOUT_S:.0f} s. The write may or "
                "may not have happened: retry it with the same key"
            )

    def wake(self) -> None:
        """Let the waiting thread go on."""
        if self._woken is not None:
            self._woken.release()

    def result(self) -> Any:
        """The reply, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.reply


class GroupCommit:
    """Feeds groups of writes to `commit`, one group at a time.

    `commit` gives each of them a reply or an error, and does not raise.
    """

    def __init__(self, commit: Callable[[Sequence[Pending]], None]) -> None:
        self._commit = commit
        self._queue: deque[Pending] = deque()
        self._writing = threading.Lock()
        self._arrived = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._start = threading.Lock()
        self._closed = False

    def run(self, command: Command[Any]) -> Any:
        """Carry out one write in step with those of other threads."""
        pending = Pending(command)
        if not self._queue and self._writing.acquire(blocking=False):
            try:
                self._commit((pending,))
            finally:
                self._writing.release()
        else:
            pending.prepare_to_wait()
            self._enqueue(pending)
            pending.wait()
        return pending.result()

    def submit(self, command: Command[Any]) -> asyncio.Future[Any]:
        """Queue one write; its future belongs to the running loop."""
        pending = Pending(command)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pending.loop_future = future
        self._enqueue(pending)
        return future

    def alone(self) -> threading.Lock:
        """Held, it keeps every writer out."""
        return self._writing

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        with self._start:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._arrived.release()
            thread.join(OUTCOME_TIMEOUT_S)

    def _enqueue(self, pending: Pending) -> None:
        with self._start:
            if self._closed:
                raise StoreClosed("this store is closed; nothing was sent. Connect again")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="holdfast-sqlite-writer", daemon=True
                )
                self._thread.start()
            self._queue.append(pending)
        self._arrived.release()

    def _work(self) -> None:
        while True:
            self._arrived.acquire()
            group = self._next_group()
            if group:
                with self._writing:
                    group.extend(self._next_group(GROUP_MAX - len(group)))
                    self._commit(group)
                _deliver(group)
            elif self._closed and not self._queue:
                return

    def _next_group(self, size_max: int = GROUP_MAX) -> list[Pending]:
        group: list[Pending] = []
        while self._queue and len(group) < size_max:
            group.append(self._queue.popleft())
        return group


def _deliver(group: Sequence[Pending]) -> None:
    """Tell everybody: threads one by one, each event loop once for all of its writes."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Pending]] = {}
    for pending in group:
        if pending.loop_future is None:
            pending.wake()
        else:
            by_loop.setdefault(pending.loop_future.get_loop(), []).append(pending)
    for loop, mine in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, mine)


def _resolve(group: Sequence[Pending]) -> None:
    for pending in group:
        future = pending.loop_future
        if future is None or future.done():
            continue
        if pending.error is None:
            future.set_result(pending.reply)
        else:
            future.set_exception(pending.error)
