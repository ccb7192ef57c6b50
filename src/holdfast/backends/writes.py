"""One write that waits for its outcome, as a thread or as a task (group_commit.py says for whom)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from holdfast.backends.group_commit import Group  # cycle: a type only; a write knows its group


class Write:
    """One write on its way: then its reply or its error, the first of which counts."""

    __slots__ = ("abandoned", "again", "alone", "group", "leads", "outcome", "payload", "session",
                 "since_s")  # fmt: skip
    may_lead = True

    def __init__(self, payload: Any, session: bytes = b"") -> None:
        self.payload = payload
        self.session = session
        """Of two writes to one session, one is under way; b"" where the engine does not care."""
        self.outcome: tuple[Any, BaseException | None] | None = None
        """In one piece: a leader may settle it while its caller gives it up in another thread."""
        self.again = False
        """Nothing of it was written, and it is to be sent again ..."""
        self.alone = False
        """... with no write to another session."""
        self.abandoned = False
        """Its caller has gone, so it must not be sent any more, nor lead."""
        self.group: Group | None = None
        self.leads: Group | None = None
        """The group that it is to carry out, until it begins."""
        self.since_s = 0.0

    @property
    def settled(self) -> bool:
        """Whether it has an outcome."""
        return self.outcome is not None

    def settle(self, reply: Any = None, error: BaseException | None = None) -> None:
        """Note the outcome. One error may be that of several writes: each raises its own."""
        if self.outcome is None:
            self.outcome = (reply, error and copy.copy(error))

    def result(self) -> Any:
        """The reply, or raise the error; None before it is settled."""
        reply, error = self.outcome or (None, None)
        if error is not None:
            raise error
        return reply

    def wake(self) -> None:
        """Let the caller that waits for it look again; more often than needed does no harm."""


class ThreadWrite(Write):
    """Waits as a thread."""

    __slots__ = ("_woken",)

    def __init__(self, payload: Any, session: bytes = b"") -> None:
        super().__init__(payload, session)
        self._woken = threading.Lock()
        self._woken.acquire()

    def wake(self) -> None:
        """Let the thread go on."""
        if self._woken.locked():  # otherwise it was woken already, and has not looked yet
            with suppress(RuntimeError):
                self._woken.release()

    def wait(self, timeout_s: float) -> bool:
        """Until it is woken, or the time is over; -1 is for ever."""
        return self._woken.acquire(timeout=timeout_s)


class TaskWrite(Write):
    """Waits as a task of the event loop that runs now."""

    __slots__ = ("_woken", "loop")

    def __init__(self, payload: Any, session: bytes = b"") -> None:
        import asyncio  # noqa: PLC0415 - it costs half of `import holdfast`, and one API needs it

        super().__init__(payload, session)
        self.loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let the task go on; in its own event loop's thread."""
        if self._woken is not None and not self._woken.done() and not self.loop.is_closed():
            self._woken.set_result(None)

    async def next_turn(self) -> None:
        """Until each task that can run has run."""
        import asyncio  # noqa: PLC0415 - as above

        await asyncio.sleep(0)

    async def wait(self, timeout_s: float) -> None:
        """Until it is woken, or the time is over."""
        self._woken = self.loop.create_future()
        if self.settled or self.leads is not None:
            return  # it was woken before it could wait
        timer = self.loop.call_later(timeout_s, self.wake)
        try:
            await self._woken
        finally:
            timer.cancel()


class ServedWrite(Write):
    """Carried out by a thread, for a task of an event loop: a future has its outcome."""

    __slots__ = ("future", "loop")
    may_lead = False

    def __init__(self, payload: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(payload)
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()

    def wake(self) -> None:
        """Hand the outcome over; in its own event loop's thread."""
        if self.outcome is not None and not self.future.done():
            reply, error = self.outcome
            if error is None:
                self.future.set_result(reply)
            else:
                self.future.set_exception(error)


def wake_each(writes: Iterable[Write]) -> None:
    """Let each of them look again."""
    for write in writes:
        write.wake()


def tell_loops(writes: Iterable[Write]) -> list[ServedWrite]:
    """Wake threads one by one, and each event loop once for all of its writes; returns those."""
    by_loop: dict[asyncio.AbstractEventLoop, list[ServedWrite]] = {}
    for write in writes:
        if isinstance(write, ServedWrite):
            by_loop.setdefault(write.loop, []).append(write)
        else:
            write.wake()
    for loop, mine in by_loop.items():
        with suppress(RuntimeError):  # it is closed, and nobody waits
            loop.call_soon_threadsafe(wake_each, mine)
    return [write for mine in by_loop.values() for write in mine]
