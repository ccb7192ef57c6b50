"""How many crash states of one recorded run are booted, read and judged in a second.

A state counts when the real engine was started on it (SQLite: a process opened it), every session
was read through the store, and the history up to that instant was judged. The recording itself
is not in the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.figure import Figure
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions

TIME_S = 15.0
TARGETS = {"sqlite": 10.0, "redis": 10.0, "postgres": None}
"""Our store by its short name -> states a second that it must reach."""


class _Quiet:
    def say(self, words: str) -> None:
        del words

    def done(self, scenario: str, verdict: str) -> None:
        del scenario, verdict


def run() -> Iterator[Figure]:
    """States a second, for each engine, on all cores."""
    for target, at_least in TARGETS.items():
        options = CheckOptions(
            target=target, faults=("power-explore",), promises=("durable",), time_s=TIME_S, seed=1
        )
        durable = check(options, _Quiet()).promises["durable"]
        evidence = durable.evidence["scenarios"]["power-explore"]
        yield Figure(
            f"{target}: crash states a second",
            evidence["states_per_s"],
            at_least=at_least,
            unit="/s",
            detail=f"{evidence['states']} states, {evidence['calls']} calls: {durable.verdict}",
        )
