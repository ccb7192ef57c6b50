"""A million rounds on each engine through each API, and every point of a call interrupted.

Rounds go on where the last run stopped (`counts`). A finding stops its combination, and
the next run begins with that round.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.rounds.interrupts import KINDS
from tests.rounds.running import APIS, ENGINES, SMALL_POOLS, run
from tests.rounds.test_interrupts import ended
from tests.torture.counts import Counts

ROUNDS = 1_000_000
CHUNK_ROUNDS = 20_000
"""On one set of data; then an empty one, so that no engine fills up."""
SEED = 1313


class Progress:
    """What one engine has reached through one API, over all runs."""

    def __init__(self, engine: str, api: str) -> None:
        self.counts = Counts(f"rounds-{engine}-{api}", ROUNDS)
        self.finding = ""

    def note(self, reached: dict[str, Any]) -> None:
        """Keep it, also for the next run."""
        self.finding = reached["finding"]
        done = reached["next_round"] - self.counts.done
        self.counts.add(done, failures=int(bool(self.finding)), stuck=reached["stuck"])

    def __str__(self) -> str:
        return str(self.counts)


@pytest.mark.timeout(0)
def test_rounds(disk_path: Path, time_s: float):
    def both_apis(engine: str) -> list[Progress]:
        return [_go_on(engine, api, disk_path, time_s / len(APIS)) for api in APIS]

    with ThreadPoolExecutor(len(ENGINES)) as lines:
        reached = [one for both in lines.map(both_apis, ENGINES) for one in both]
    print(*reached, sep="\n")
    findings = [f"{one}: {one.finding}" for one in reached if one.finding]
    assert not findings, "\n\n".join(findings)


def _go_on(engine: str, api: str, folder: Path, time_s: float) -> Progress:
    progress, end_s = Progress(engine, api), time.monotonic() + time_s
    while progress.counts.left and not progress.finding:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        data = folder / f"{engine}-{api}-{progress.counts.done}"
        data.mkdir()
        rounds = min(CHUNK_ROUNDS, progress.counts.left)
        words = ("--seed", SEED, "--first", progress.counts.done, "--rounds", rounds)
        url = ENGINES[engine](data).url
        progress.note(run("campaign", url, api, *map(str, words), seconds=left_s))
    return progress


@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_interrupt_at_every_point(engine: str, disk_path: Path):
    url = ENGINES[engine](disk_path).url + SMALL_POOLS[engine]
    ended(run("interrupts", url, *KINDS, seconds=900))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("engine", ENGINES)
def test_ten_thousand_signals(engine: str, disk_path: Path, chance: random.Random):
    url = ENGINES[engine](disk_path).url + SMALL_POOLS[engine]
    seed = str(chance.randrange(10**6))
    ended(run("signals", url, "--count", "10000", "--seed", seed, seconds=1800))
