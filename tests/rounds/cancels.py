"""Cancellations at chosen awaits of a call of the async API, in a process of its own.

Every task that a call starts is counted: the k-th await is the k-th time that any of them waits.
Cancelled is the caller, or all of them as `asyncio.run` does at its end; either as soon as that
await begins, or when what it waits for has come and the task has not run yet.
`python -m tests.rounds.cancels --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import itertools
import json
import os
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

import holdfast
from holdfast import Ack, AsyncStore, HoldfastError, Message, OutcomeUnknown
from tests.rounds.calls import NAMESPACE
from tests.rounds.interrupts import BOUND_S, END_S, KINDS, REPEATS, Tried

WHO: Final = ("caller", "everyone")
WHEN: Final = ("at-once", "when-ready")


class Strike:
    """Cancels at the k-th await of the tasks that it counts."""

    def __init__(self, at: int, who: str, when: str) -> None:
        self.at, self.who, self.when = at, who, when
        self.seen = 0
        self.place = ""
        self.caller: asyncio.Task[Any] | None = None
        self.tasks: list[asyncio.Task[Any]] = []

    def start(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        """A task factory for as long as the call takes."""
        counted: Any = Counted(work, self)
        task: asyncio.Task[Any] = asyncio.Task(counted, loop=loop, **more)
        self.tasks.append(task)
        return task

    def note(self, waited: Any, name: str) -> None:
        """A task is about to wait."""
        self.seen += 1
        if self.seen <= self.at or self.place:
            return
        self.place = f"{name} {type(waited).__name__}"
        if self.when == "when-ready" and isinstance(waited, asyncio.Future):
            waited.add_done_callback(lambda _: self.cancel())
        else:
            self.cancel()

    def cancel(self) -> None:
        """It is time."""
        for task in self.tasks if self.who == "everyone" else [self.caller]:
            if task is not None:
                task.cancel()


class Counted(Coroutine[Any, Any, Any]):
    """A coroutine that tells whenever it waits."""

    def __init__(self, inner: Any, strike: Strike) -> None:
        self._inner, self._strike = inner, strike

    def send(self, value: Any) -> Any:
        return self._told(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._told(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError  # it is run by a task, and awaited by nobody

    def _told(self, waited: Any) -> Any:
        self._strike.note(waited, getattr(self._inner, "__qualname__", "task"))
        return waited


class Trial:
    """One store, and what it has acknowledged."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: AsyncStore
        self.names = itertools.count()
        self.acked: dict[str, dict[int, str]] = {}

    async def renew(self) -> None:
        """A store that nothing has happened to; the old one may hang at its end."""
        self.store = await holdfast.connect_async(self.url, namespace=NAMESPACE)

    async def append(self, session: str) -> None:
        """An append whose ack is kept."""
        text = f"{session}/{next(self.names)}"
        ack: Ack = await self.store.append(session, Message("user", text))
        self.acked.setdefault(session, {})[ack.first] = text

    async def check(self, session: str) -> str:
        """What is wrong with the store now; nothing is the empty text."""
        await asyncio.gather(self.append(session), self.append(session))
        held = {message.seq: message.content for message in await self.store.history(session)}
        lost = {n: text for n, text in self.acked[session].items() if held.get(n) != text}
        if lost:
            return f"acknowledged, and missing: {lost}"
        return f"doubled: {held}" if len(set(held.values())) != len(held) else ""


async def within(work: Coroutine[Any, Any, str]) -> str:
    """A call's trouble, or that it did not end; it is left where it stands then."""
    task = asyncio.create_task(work)
    await asyncio.wait([task], timeout=BOUND_S)
    if not task.done():
        return f"no answer within {BOUND_S:g} s"
    if task.cancelled():
        return "cancelled, though nobody cancelled it"
    error = task.exception()
    return task.result() if error is None else repr(error)


async def strike(trial: Trial, kind: str, session: str, blow: Strike) -> str:
    """One call, cancelled at one of its awaits; the text says what went wrong meanwhile."""
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "append": lambda: trial.append(session),
        "queued": lambda: trial.append(session),
        "history": lambda: trial.store.history(session),
        "forget": lambda: trial.store.forget(session),
    }
    loop = asyncio.get_running_loop()
    others = [asyncio.create_task(trial.append(session))] if kind == "queued" else []
    await asyncio.sleep(0)
    if kind == "forget":
        trial.acked[session] = {}
    loop.set_task_factory(blow.start)
    blow.caller = asyncio.create_task(calls[kind]())
    _, pending = await asyncio.wait([blow.caller, *others], timeout=BOUND_S)
    loop.set_task_factory(None)
    if pending:
        return f"no end within {BOUND_S:g} s: {pending}"
    trouble = [task.exception() for task in others]
    if blow.who == "everyone":  # the task that wrote for both may have been among them
        trouble = [error for error in trouble if not isinstance(error, OutcomeUnknown)]
    error = None if blow.caller.cancelled() else blow.caller.exception()
    if error is not None and (not blow.place or not isinstance(error, HoldfastError)):
        trouble.append(error)
    return " ".join(repr(one) for one in trouble if one is not None)


async def forced(url: str, kind: str, who: str, when: str, end_s: float, step: int) -> Tried:
    """Cancellations at every await of a call, until it ends without reaching one."""
    tried, trial = Tried(), Trial(url)
    await trial.renew()
    await trial.append("warm")
    for at in itertools.count(0, step):
        if time.monotonic() > end_s:
            break
        session, place, trouble = f"{kind}.{who}.{when}.{at}", "", ""
        await trial.append(session)
        for _ in range(1 if kind == "queued" else REPEATS):
            blow = Strike(at, who, when)
            trouble = trouble or await strike(trial, kind, session, blow)
            place = blow.place or place
        if not place and not trouble:
            tried.reached_end = True
            break
        trouble = trouble or await within(trial.check(session))
        tried.points += 1
        if trouble:
            tried.broken.append((at, f"{who} {when} {place}", trouble))
            await trial.renew()
    return tried


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("kinds", nargs="+", choices=KINDS)
    arguments.add_argument("--step", type=int, default=1, help="every so many awaits")
    arguments.add_argument("--seconds", type=float, default=END_S)
    asked = arguments.parse_args()
    faulthandler.dump_traceback_later(asked.seconds + END_S, exit=True)
    end_s = time.monotonic() + asked.seconds
    asyncio.run(_all(asked, end_s))


async def _all(asked: argparse.Namespace, end_s: float) -> None:
    tried = {
        f"{kind} {who} {when}": vars(await forced(asked.url, kind, who, when, end_s, asked.step))
        for kind, who, when in itertools.product(asked.kinds, WHO, WHEN)
    }
    print(json.dumps(tried), flush=True)
    os._exit(0)  # what hangs is not waited for


if __name__ == "__main__":
    main()
