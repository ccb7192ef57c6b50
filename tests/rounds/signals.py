"""Real signals at random moments of appends and histories, whose handler raises.

In a process of its own: `python -m tests.rounds.signals --help`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from holdfast import HoldfastError, OutcomeUnknown, StoreClosed
from tests.rounds.interrupts import BOUND_S, END_S, Broken, Interrupted, Trial, Tried, too_late

CALLS_PER_SESSION = 50
SIGNALS_PER_CHECK = 10


class Alarm:
    """Interrupts a call of the main thread after a random time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._armed = self._calling = False
        self.count = 0

    def disturb(self, call: Callable[[], str]) -> str:
        """What the call says, or nothing if it was interrupted."""
        signal.signal(signal.SIGALRM, self._strike)
        try:
            self._armed = self._calling = True
            first_s = self._chance.randrange(20, 2000) / 1e6
            signal.setitimer(signal.ITIMER_REAL, first_s, BOUND_S)
            said = call()
            self._armed = False
        except Interrupted:
            return ""
        finally:
            self._calling = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return said

    def _strike(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            self.count += 1
            raise Interrupted
        if self._calling:  # the first was swallowed, and the call does not end
            too_late(number, frame)


class Beside:
    """A thread that appends all the while: sometimes it leads, sometimes the main thread does."""

    session = "beside"

    def __init__(self, trial: Trial) -> None:
        self.trouble = ""
        self._trial = trial
        self._stop = threading.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def end(self) -> None:
        """Let it end; one that is stuck is not waited for."""
        self._stop.set()

    def _write(self) -> None:
        while not self._stop.is_set():
            try:
                self._trial.append(self.session)
            except OutcomeUnknown:  # whoever wrote for it was interrupted
                continue
            except (HoldfastError, RuntimeError) as error:
                if not isinstance(error, StoreClosed):
                    self.trouble = f"a thread beside: {error!r}"
                return


def shower(url: str, count: int, end_s: float, chance: random.Random) -> Tried:
    """So many signals; the store is asked now and then whether it still serves."""
    tried, trial, alarm = Tried(), Trial(url), Alarm(chance)
    beside, calls, checked = Beside(trial), 0, 0
    while alarm.count < count and time.monotonic() < end_s:
        session = f"signals.{calls // CALLS_PER_SESSION}"
        calls += 1
        try:
            trouble = alarm.disturb(lambda at=session: trial.append_and_read(at))  # type: ignore[misc]
        except (HoldfastError, Broken) as error:
            trouble = repr(error)
        if alarm.count >= checked + SIGNALS_PER_CHECK:
            checked = alarm.count
            trouble = trouble or beside.trouble or trial.still_serves(session)
        if trouble:
            tried.broken.append((alarm.count, "", trouble))
            beside.end()
            trial.renew()
            beside = Beside(trial)
    beside.end()
    for session in trial.acked:
        if trouble := trial.still_serves(session):
            tried.broken.append((alarm.count, "at the end", trouble))
            break
    tried.points, tried.reached_end = alarm.count, alarm.count >= count
    return tried


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("--count", type=int, default=300, help="of signals")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--seconds", type=float, default=END_S)
    asked = arguments.parse_args()
    sys.unraisablehook = lambda _: None  # an interrupt inside a destructor goes there
    faulthandler.dump_traceback_later(asked.seconds + END_S, exit=True)
    end_s = time.monotonic() + asked.seconds
    tried = shower(asked.url, asked.count, end_s, random.Random(asked.seed))
    print(json.dumps({"signals": vars(tried)}), flush=True)
    os._exit(0)  # a broken store may have left threads that never end


if __name__ == "__main__":
    main()
