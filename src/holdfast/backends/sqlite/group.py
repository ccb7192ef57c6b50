"""Group commit: writes that arrive together share one transaction and so one fsync.

A write that finds nobody writing is carried out in its own thread, without a switch. One
that finds the writer busy queues, and a thread of ours takes all that has queued up at once.
Async writes always queue, so that no event loop waits for a disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from holdfast.commands import Command
from holdfast.errors import OutcomeUnknown, StoreClosed

GROUP_MAX: Final = 256
OUTCOME_TIMEOUT_S: Final = 120.0
UNANSWERED: Final = object()


class Pending:
    """One write on its way: a command, then either its reply or its error."""

    __slots__ = ("_woken", "command", "error", "future", "reply")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.reply: Any = UNANSWERED
        self.error: BaseException | None = None
        self.future: asyncio.Future[Any] | None = None
        self._woken: threading.Lock | None = None

    def will_wait(self) -> None:
        """Called before it is queued by a thread that is going to wait."""
        self._woken = threading.Lock()
        self._woken.acquire()

    def wait(self) -> None:
        """Return when somebody has dealt with it."""
        if self._woken is not None:
            self._woken.acquire(timeout=OUTCOME_TIMEOUT_S)

    def wake(self) -> None:
        """Let the waiting thread go on."""
        if self._woken is not None:
            self._woken.release()

    def result(self) -> Any:
        """The reply, or raise the error. Without either nobody knows: that is no ack."""
        if self.error is not None:
            raise self.error
        if self.reply is UNANSWERED:
            raise OutcomeUnknown(
                "the writer gave no answer. The write may or may not have happened: "
                "retry it with the same key"
            )
        return self.reply

    def settle(self) -> None:
        """Hand the outcome to the task that awaits it; in its event loop's thread."""
        if self.future is None or self.future.done():
            return
        try:
            self.future.set_result(self.result())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the task's to know
            self.future.set_exception(error)


class GroupCommit:
    """Feeds groups of writes to `commit`, one group at a time.

    `commit` gives each write of a group its reply or its error.
    """

    def __init__(self, commit: Callable[[Sequence[Pending]], None]) -> None:
        self._commit = commit
        self._queue: SimpleQueue[Pending | None] = SimpleQueue()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._changing = threading.Lock()
        self._closed = False

    def run(self, command: Command[Any]) -> Any:
        """Carry out one write, in step with those of other threads."""
        pending = Pending(command)
        if self._writing.acquire(blocking=False):
            group = (pending,) if self._queue.empty() else self._gather(pending)
            try:
                self._commit(group)
            finally:
                self._writing.release()
                if len(group) > 1:
                    _deliver(group)
        else:
            pending.will_wait()
            self._enqueue(pending)
            pending.wait()
        return pending.result()

    def submit(self, command: Command[Any]) -> asyncio.Future[Any]:
        """Queue one write; its future belongs to the running loop."""
        pending = Pending(command)
        pending.future = asyncio.get_running_loop().create_future()
        self._enqueue(pending)
        return pending.future

    def alone(self) -> threading.Lock:
        """Held, it keeps every writer out."""
        return self._writing

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        with self._changing:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join(OUTCOME_TIMEOUT_S)
        self._turn_away()

    def _enqueue(self, pending: Pending) -> None:
        self._queue.put(pending)
        if self._closed:
            self._turn_away()
        elif self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._changing:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._work, name="holdfast-sqlite-writer", daemon=True
                )
                self._thread.start()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            with self._writing:
                group = self._gather(first)
                with suppress(Exception):  # a write that it left unanswered is unknown
                    self._commit(group)
            _deliver(group)

    def _gather(self, first: Pending) -> list[Pending]:
        """A write, and all that have queued up behind it."""
        group = [first]
        while len(group) < GROUP_MAX and not self._queue.empty():
            pending = self._queue.get()
            if pending is None:  # the end of the thread: that is not for whoever gathers
                self._queue.put(None)
                break
            group.append(pending)
        return group

    def _turn_away(self) -> None:
        """What came after the end was not written."""
        while not self._queue.empty():
            late = self._queue.get()
            if late is not None:
                late.error = StoreClosed("this store is closed; nothing was sent. Connect again")
                _deliver((late,))


def _deliver(group: Sequence[Pending]) -> None:
    """Tell everybody: threads one by one, each event loop once for all of its writes."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Pending]] = {}
    for pending in group:
        if pending.future is None:
            pending.wake()
        else:
            by_loop.setdefault(pending.future.get_loop(), []).append(pending)
    for loop, mine in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle_all, mine)


def _settle_all(group: Sequence[Pending]) -> None:
    for pending in group:
        pending.settle()
