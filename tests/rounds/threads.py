"""Rounds of threads on one store: the sync API.

In some rounds every thread, those of the store as well, gives way at random: at a call, and after a
call into C. Those are the moments at which CPython itself may switch, so nothing is tried that
could not happen; a race that needs one switch in a million is met in seconds.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from tests.rounds.calls import BOUND_S, Ledger, Stuck, call
from tests.rounds.plan import Plan, Worker

GIVE_WAY_S = (0.0, 0.0, 0.00002, 0.0002)
CHECKS = {"empty", "full", "qsize", "locked", "acquire", "release", "put", "get", "popleft"}
"""After these, what was seen or taken may be changed by another thread: it gets more chances."""


class Jitter:
    """A profile function that now and then lets another thread run."""

    def __init__(self) -> None:
        self.on = False
        self._chance = random.Random(0)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002
        if not self.on or event not in {"call", "c_return"}:
            return
        often = event == "c_return" and argument.__name__ in CHECKS
        if self._chance.random() < (0.25 if often else 0.02):
            time.sleep(self._chance.choice(GIVE_WAY_S))


class Crowd:
    """Threads that carry out rounds, again and again."""

    def __init__(self, size: int = 4) -> None:
        self.jitter = Jitter()
        self._jobs: list[SimpleQueue[Callable[[], None]]] = [SimpleQueue() for _ in range(size)]
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.setprofile(self.jitter)  # for the threads that a store starts
        for jobs in self._jobs:
            threading.Thread(target=self._live, args=(jobs,), daemon=True).start()

    def run_round(self, plan: Plan, stores: list[Any], ledger: Ledger) -> None:
        """Every worker of the plan, to its end."""
        sys.setswitchinterval(plan.switch_s)
        self.jitter.on = plan.jitter
        start = threading.Barrier(len(plan.workers))

        def job(worker: Worker) -> Callable[[], None]:
            def work() -> None:
                sys.setprofile(self.jitter if plan.jitter else None)
                start.wait(BOUND_S)
                _work(worker, stores, ledger)

            return work

        self.run([job(worker) for worker in plan.workers], "a call")
        self.jitter.on = False

    def run(self, work: list[Callable[[], None]], what: str) -> None:
        """Do all of these, each in a thread; not for ever."""
        for one, jobs in zip(work, self._jobs, strict=False):
            jobs.put(one)
        for _ in work:
            try:
                error = self._ends.get(timeout=BOUND_S)
            except Empty:
                raise Stuck(f"{what} did not return within {BOUND_S:g} s") from None
            if error is not None:
                raise error

    def _live(self, jobs: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            job = jobs.get()
            error = None
            try:
                job()
            except BaseException as raised:  # noqa: BLE001 - the round raises it
                error = raised
            sys.setprofile(None)
            self._ends.put(error)


def _work(worker: Worker, stores: list[Any], ledger: Ledger) -> None:
    if worker.pause_turns:
        time.sleep(worker.pause_turns * 2e-5)
    until_s = time.perf_counter() + worker.pause_us / 1e6
    while time.perf_counter() < until_s:
        pass
    for operation in worker.operations:
        began = ledger.begin()
        try:
            result = call(stores[worker.store], operation)
        except BaseException as error:  # noqa: BLE001 - the record judges it
            ledger.failed(operation, began, error)
        else:
            ledger.done(operation, began, result)
