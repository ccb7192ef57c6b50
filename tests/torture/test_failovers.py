"""200 failovers under load on each topology, or as many as there is time for: nothing at REPLICA is lost.

They go on where the last run stopped (`counts`), so that 200 may be reached in several.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from holdfast.verify.engines import start_engine
from tests.postgres.failovers import failover_under_load
from tests.redis.failovers import lose_primaries
from tests.torture.counts import Counts

FAILOVERS = 200
AT_ONCE = 4
KINDS = {"sentinel": "redis", "cluster": "redis", "standby": "postgres", "patroni": "postgres"}
CASES = (*KINDS, "sentinel-lagging")
"""The last: before each failover a replica is held, and comes back with less than the other has."""


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
    counts, part = Counts(f"failovers-{case}", FAILOVERS), 0
    end, topology = time.monotonic() + time_s / len(CASES), case.partition("-")[0]
    with start_engine(KINDS[topology], topology=topology) as engine:
        while not part or (counts.left and time.monotonic() < end):
            failovers, acks, lost = strike(case, engine, part)
            counts.add(failovers, failures=lost, acks=acks)
            assert lost == 0, counts
            part += 1
    print(counts)
