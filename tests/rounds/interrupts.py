"""Exceptions at chosen points of a call, as a signal would raise them, in a process of its own.

CPython runs signal handlers at a function's entry, after a call into C has returned and at jumps back.
A profile function sees the first two and may raise there. So every point of a call can be tried, one
by one: the k-th is the k-th entry or return. `python -m tests.rounds.interrupts --help`.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import faulthandler
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

import holdfast
from holdfast import Ack, HoldfastError, Message
from tests.rounds.calls import NAMESPACE
from tests.rounds.holding import hold, is_asleep
from tests.waiting import wait_until

BOUND_S = float(os.environ.get("HOLDFAST_INTERRUPTS_BOUND_S", "3"))
"""How soon a store must serve again after an interrupt; it has nothing to wait for but a disk."""
END_S = 60.0
KINDS = ("append", "queued", "history", "forget")
REPEATS = 9
"""Of one interrupt: more than a pool has connections, so that one lost each time is missed."""
RESUME = dis.opmap["RESUME"]


class Interrupted(BaseException):
    """What a signal's handler raises; like KeyboardInterrupt, no `except Exception` catches it."""


class Broken(Exception):
    """A call did not do what it must, whatever the interrupt."""


class Strike:
    """Raises at the k-th point of a call, in the thread that has set it as its profile function."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0
        self.place = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in {"call", "c_return"} or (event == "call" and not _may_stop(frame)):
            return
        self.seen += 1
        if self.seen > self.at and not self.place:
            what = f" after {argument.__name__}" if event == "c_return" else ""
            self.place = f"{_short(frame)}{what}"
            raise Interrupted(self.place)


def _may_stop(frame: FrameType) -> bool:
    """Not where a generator is resumed inside a `yield from`: CPython does not look there."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    return frame.f_lasti < 0 or code[at] != RESUME or code[at + 1] & 3 < 2


def _short(frame: FrameType) -> str:
    name = frame.f_code.co_filename.rpartition("site-packages/")[2].rpartition("src/")[2]
    return f"{name.rpartition('lib/python3.11/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"


@dataclass
class Tried:
    """What came of it. `broken`: point, place, and what went wrong after it."""

    points: int = 0
    reached_end: bool = False
    broken: list[tuple[int, str, str]] = field(default_factory=list)


class Trial:
    """One store, what it has acknowledged, and a second thread that uses it too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = holdfast.connect(url, namespace=NAMESPACE)
        self.names = itertools.count()
        self.acked: dict[str, dict[int, str]] = {}
        self._jobs: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._ends: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._live, daemon=True).start()

    def append(self, session: str) -> None:
        """An append whose ack is kept."""
        text = f"{session}/{next(self.names)}"
        ack = self.store.append(session, Message("user", text))
        self.acked.setdefault(session, {})[ack.first] = text

    def still_serves(self, session: str) -> str:
        """What is wrong with the store now; nothing is the empty text."""
        for who, run in (("its thread", self._here), ("another thread", self._elsewhere)):
            if trouble := run(lambda: self.append_and_read(session)):
                return f"{who}: {trouble}"
        return ""

    def renew(self) -> None:
        """Go on with a store that nothing has happened to; the old one may hang at its end."""
        old, self.store = self.store, holdfast.connect(self.url, namespace=NAMESPACE)
        threading.Thread(target=old.close, daemon=True).start()

    def append_and_read(self, session: str) -> str:
        """An append that the next history must hold, with all that came before it."""
        self.append(session)
        held = {message.seq: message.content for message in self.store.history(session)}
        lost = {n: text for n, text in self.acked[session].items() if held.get(n) != text}
        if lost:
            with holdfast.connect(self.url, namespace=NAMESPACE) as other:
                there = {message.seq for message in other.history(session)}
            outcome = "read by another store" if there.issuperset(lost) else "LOST"
            return f"acknowledged, and missing: {lost} ({outcome})"
        if len(set(held.values())) != len(held):
            return f"doubled: {held}"
        return ""

    def _here(self, work: Callable[[], str]) -> str:
        try:
            with bounded():
                return work()
        except (HoldfastError, Broken) as error:
            return repr(error)

    def _elsewhere(self, work: Callable[[], str]) -> str:
        self._jobs.put(work)
        try:
            return str(self._ends.get(timeout=BOUND_S))
        except Empty:
            self._jobs, self._ends = SimpleQueue(), SimpleQueue()
            threading.Thread(target=self._live, daemon=True).start()
            return f"no answer within {BOUND_S:g} s"

    def _live(self) -> None:
        jobs, ends = self._jobs, self._ends
        while True:
            work = jobs.get()
            try:
                ends.put(work())
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                ends.put(repr(error))


def strike(trial: Trial, kind: str, blow: Strike, session: str) -> None:
    """One call with an interrupt at one of its points."""
    text = f"{session}/{next(trial.names)}"
    message = Message("user", text)
    calls: dict[str, Callable[[], Any]] = {
        "append": lambda: trial.store.append(session, message),
        "queued": lambda: trial.store.append(session, message),
        "history": lambda: trial.store.history(session),
        "forget": lambda: trial.store.forget(session),
    }
    call = calls[kind]
    if kind == "forget":
        trial.acked[session] = {}
    with leader_held(trial, session, blow) if kind == "queued" else contextlib.nullcontext():
        with bounded():
            try:
                sys.setprofile(blow)
                result = call()
            except Interrupted:
                result = None
            finally:
                sys.setprofile(None)
    if isinstance(result, Ack):
        trial.acked[session][result.first] = text


def too_late(_number: int, frame: FrameType | None) -> None:
    """Of a timer: says where the main thread was waiting."""
    while frame is not None and "holdfast" not in frame.f_code.co_filename:
        frame = frame.f_back
    where = "" if frame is None else f", at {_short(frame)}"
    raise Broken(f"no answer within {BOUND_S:g} s{where}")


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """A timer ends what this thread waits for too long."""

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, BOUND_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def leader_held(trial: Trial, session: str, blow: Strike) -> Iterator[None]:
    """Another thread's append is on its way to an engine that does not answer.

    The engine goes on as soon as this thread sleeps, which is when its own append has queued;
    or when the block ends, which is when the interrupt came before that.
    """
    ended, error = threading.Event(), []
    me = threading.get_native_id()

    def lead() -> None:
        try:
            trial.append(session)
        except HoldfastError as raised:
            error.append(raised)

    def let_go() -> None:
        wait_until(lambda: ended.is_set() or is_asleep(me, lambda: blow.seen), within_s=END_S)
        release()

    release = hold(trial.url)
    leader = threading.Thread(target=lead, daemon=True)
    leader.start()
    wait_until(lambda: is_asleep(leader.native_id or 0, lambda: 0), within_s=END_S)
    other = threading.Thread(target=let_go, daemon=True)
    other.start()
    try:
        yield
    finally:
        ended.set()
        other.join(END_S)
        leader.join(BOUND_S)
    if leader.is_alive():
        raise Broken("the append of the leader did not return")
    if error and type(error[0]).__name__ != "OutcomeUnknown":
        raise Broken(f"the append of the leader failed: {error[0]!r}")


def forced(url: str, kind: str, first: int, step: int, end_s: float) -> Tried:
    """Interrupts at every `step`-th point of a call, until it ends without reaching one."""
    tried, trial = Tried(), Trial(url)
    trial.append("warm")
    for at in itertools.count(first, step):
        if time.monotonic() > end_s:
            break
        session, place, trouble = f"{kind}.{at}", "", ""
        trial.append(session)
        try:
            for _ in range(1 if kind == "queued" else REPEATS):
                blow = Strike(at)
                try:
                    strike(trial, kind, blow, session)
                finally:  # the first place counts: after that one the store may be broken
                    place = place or blow.place
            if not place:
                tried.reached_end = True
                break
            trouble = trial.still_serves(session)
        except (Broken, HoldfastError) as error:
            trouble = repr(error)
        tried.points += 1
        if trouble:
            tried.broken.append((at, place, trouble))
            trial.renew()
    return tried


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("kinds", nargs="+", choices=KINDS)
    arguments.add_argument("--first", type=int, default=0, help="the first point")
    arguments.add_argument("--step", type=int, default=1, help="every so many points")
    arguments.add_argument("--seconds", type=float, default=END_S)
    asked = arguments.parse_args()
    sys.unraisablehook = lambda _: None  # an interrupt inside a destructor goes there
    faulthandler.dump_traceback_later(asked.seconds + END_S, exit=True)
    end_s = time.monotonic() + asked.seconds
    tried = {
        kind: vars(forced(asked.url, kind, asked.first, asked.step, end_s)) for kind in asked.kinds
    }
    print(json.dumps(tried), flush=True)
    os._exit(0)  # a broken store may have left threads that never end


if __name__ == "__main__":
    main()
