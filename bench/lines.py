"""How fast every line of our SQLite store is crashed at, beside a new process for each."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench.figure import Figure, side_by_side
from holdfast.verify import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios import CrashAtLine, crash_at_line

POINTS = 200
ROUNDS = 5
ONE_PROCESS = """
import sys, holdfast
from holdfast.verify.workload import client
with holdfast.connect(sys.argv[1], require=holdfast.Durability.MEMORY) as store:
    store.append("s", holdfast.Message("user", "hello"))
"""


class Clock:
    """When each batch of points was done."""

    def __init__(self) -> None:
        self.times: list[tuple[float, int]] = []

    def say(self, words: str) -> None:
        """Note the number of points, where the words have one."""
        if words.startswith(CrashAtLine.about + ": "):
            self.times.append((time.perf_counter(), int(words.split()[-3])))

    def done(self, scenario: str, verdict: str) -> None:
        """Nothing to note."""


def run() -> Iterator[Figure]:
    """Points per second, and what two new processes for a point would take."""
    crash_at_line.POINTS_MAX = POINTS  # type: ignore[misc]
    clock = Clock()
    options = CheckOptions(faults=("crash-at-line",), promises=("loud",), seed=1)
    verdict = check.check(options, clock).verdict
    (begin, first), (end, last) = clock.times[0], clock.times[-1]
    point_s = (end - begin) / (last - first)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", ONE_PROCESS, f"sqlite:///{folder}/memory.db"]
        new = side_by_side({"new": lambda: subprocess.run(words, check=True)}, rounds=ROUNDS)["new"]
    detail = f"{last} points, {'all survived' if verdict is Verdict.KEPT else verdict}"
    yield Figure(
        "crash points a second, SQLite", 1 / point_s, at_least=10, unit="/s", detail=detail
    )
    detail = f"{2 * new * 1000:.0f} ms for two processes, {point_s * 1000:.0f} ms for a point"
    yield Figure("two new processes / one point", 2 * new / point_s, at_least=1, detail=detail)
