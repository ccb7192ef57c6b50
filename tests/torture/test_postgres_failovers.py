"""200 failovers of each PostgreSQL topology, or as many as there is time for: nothing at REPLICA is lost."""

from __future__ import annotations

import time

import pytest

from holdfast.verify.engines import start_engine
from tests.postgres.failovers import failover_under_load

FAILOVERS = 200


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["standby", "patroni"])
def test_nothing_acknowledged_is_lost_in_many_failovers(name: str, time_s: float):
    end, lost, done = time.monotonic() + time_s / 2, 0, 0
    with start_engine("postgres", topology=name) as topology:
        while not done or (done < FAILOVERS and time.monotonic() < end):
            lost += failover_under_load(topology, f"failover-{done}")
            done += 1
    print(f"{name}: {done} failovers, {lost} acknowledged appends lost")
    assert lost == 0
