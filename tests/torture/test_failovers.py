"""200 failovers under load on each topology, or as many as there is time for: nothing at REPLICA is lost.

`HOLDFAST_TORTURE_COUNTS=FOLDER` keeps the counts between runs, so that 200 may be reached in several.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.verify.engines import start_engine
from tests.postgres.failovers import failover_under_load
from tests.redis.failovers import lose_primaries

FAILOVERS = 200
AT_ONCE = 4
KINDS = {"sentinel": "redis", "cluster": "redis", "standby": "postgres", "patroni": "postgres"}
CASES = (*KINDS, "sentinel-lagging")
"""The last: before each failover a replica is held, and comes back with less than the other has."""


class Counts:
    """Failovers, acks and lost acks of one case: of this run, or of all that share the folder."""

    def __init__(self, case: str) -> None:
        folder = os.environ.get("HOLDFAST_TORTURE_COUNTS")
        self._path = Path(folder, f"{case}.json") if folder else None
        known: tuple[int, int, int] = (0, 0, 0)
        if self._path is not None and self._path.exists():
            known = tuple(json.loads(self._path.read_text()))
        self.failovers, self.acks, self.lost = known

    def add(self, failovers: int, acks: int, lost: int) -> None:
        self.failovers += failovers
        self.acks += acks
        self.lost += lost
        if self._path is not None:
            self._path.write_text(json.dumps([self.failovers, self.acks, self.lost]))


def strike(case: str, engine: Any, part: int) -> tuple[int, int, int]:
    """Some failovers under load: how many, acks, and acks that are lost after them."""
    if KINDS.get(case) == "postgres":
        return (1, *failover_under_load(engine, f"failover-{part}"))
    is_lagging = case == "sentinel-lagging"
    load, wrong, seen = lose_primaries(engine, AT_ONCE, name=f"p{part}.", is_lagging=is_lagging)
    return len(seen), len(load.acknowledged), len(wrong)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("case", CASES)
def test_nothing_acknowledged_is_lost_in_two_hundred_failovers(case: str, time_s: float):
    counts, part = Counts(case), 0
    end, topology = time.monotonic() + time_s / len(CASES), case.partition("-")[0]
    with start_engine(KINDS[topology], topology=topology) as engine:
        while not part or (counts.failovers < FAILOVERS and time.monotonic() < end):
            counts.add(*strike(case, engine, part))
            part += 1
    print(f"{case}: {counts.failovers} failovers, {counts.lost} of {counts.acks} acks lost")
    assert counts.lost == 0
