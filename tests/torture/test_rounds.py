"""A million rounds on each engine through each API, and every point of a call interrupted.

Rounds go on where the last run stopped: `.cache/rounds/` knows. A finding stops its combination, and
the next run begins with that round.
"""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.rounds.interrupts import KINDS
from tests.rounds.running import APIS, ENGINES, ROOT, SMALL_POOLS, run
from tests.rounds.test_interrupts import ended

ROUNDS = 1_000_000
CHUNK_ROUNDS = 20_000
"""On one set of data; then an empty one, so that no engine fills up."""
SEED = 1313
FOLDER = ROOT / ".cache" / "rounds"


class Progress:
    """What one engine has reached through one API, over all runs."""

    def __init__(self, engine: str, api: str) -> None:
        self.engine, self.api = engine, api
        self.file = FOLDER / f"{engine}-{api}-{SEED}.json"
        told = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        self.rounds: int = told.get("rounds", 0)
        self.stuck: int = told.get("stuck", 0)
        self.finding = ""

    def note(self, reached: dict[str, Any]) -> None:
        """Keep it, also for the next run."""
        self.rounds = reached["next_round"]
        self.stuck = reached["stuck"]
        self.finding = reached["finding"]
        FOLDER.mkdir(parents=True, exist_ok=True)
        told = {"rounds": self.rounds, "stuck": self.stuck, "finding": self.finding}
        self.file.write_text(json.dumps(told), "utf-8")

    def __str__(self) -> str:
        return f"{self.engine:9} {self.api:6} {self.rounds:>10,} {self.stuck:>18}"


@pytest.mark.timeout(0)
def test_rounds(disk_path: Path, time_s: float):
    def both_apis(engine: str) -> list[Progress]:
        return [_go_on(engine, api, disk_path, time_s / len(APIS)) for api in APIS]

    with ThreadPoolExecutor(len(ENGINES)) as lines:
        reached = [one for both in lines.map(both_apis, ENGINES) for one in both]
    print("engine    API        rounds    waits past bound", *reached, sep="\n")
    findings = [f"{one}: {one.finding}" for one in reached if one.finding]
    assert not findings, "\n\n".join(findings)


def _go_on(engine: str, api: str, folder: Path, time_s: float) -> Progress:
    progress, end_s = Progress(engine, api), time.monotonic() + time_s
    while progress.rounds < ROUNDS and not progress.finding:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        data = folder / f"{engine}-{api}-{progress.rounds}"
        data.mkdir()
        rounds = min(CHUNK_ROUNDS, ROUNDS - progress.rounds)
        words = ("--seed", SEED, "--first", progress.rounds, "--rounds", rounds)
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
