"""Two hundred failovers under load on each Redis topology: nothing acknowledged at REPLICA is lost."""

from __future__ import annotations

import pytest

from holdfast.pytest_plugin import EngineFactory
from tests.redis.failovers import lose_primaries

FAILOVERS = 200


@pytest.mark.timeout(0)
@pytest.mark.parametrize("topology", ["sentinel", "cluster"])
def test_no_ack_is_lost_in_two_hundred_failovers(
    redis_engine_factory: EngineFactory, topology: str
) -> None:
    engine = redis_engine_factory(topology=topology)
    load, wrong, seen = lose_primaries(engine, FAILOVERS)
    took = sorted(one.facts["seconds"] for one in seen)
    print(
        f"{topology}: {len(load.acknowledged)} acks, failovers of {took[len(took) // 2]} s (median)"
    )
    assert wrong == []
