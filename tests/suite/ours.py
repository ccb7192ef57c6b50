"""Our own store on any engine, as a target, through either door."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.verify import Claims, NotClaimed, Target

DOORS = {"sync": holdfast.connect, "async": holdfast.connect_async}
TTL_S = 0.6


def our_target(request: pytest.FixtureRequest, engine: Any) -> Target:
    """Only where expiry is the question has it a time to live: other tests may take longer."""
    ttl_s = TTL_S if request.function.holdfast_promise == "expiring" else None
    door = DOORS[request.param]
    return Target(
        open=lambda: door(engine.url, ttl_s=ttl_s),
        engine=engine,
        name=f"holdfast on {engine.kind}, {request.param}",
        ttl_s=ttl_s,
        claims=Claims(recallable=NotClaimed("there is no recall yet")),
    )
