"""Our own store on SQLite is held to exactly the suite that strangers use, through both doors."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken

DOORS = {"sync": holdfast.connect, "async": holdfast.connect_async}
TTL_S = 0.4


@pytest.fixture(params=DOORS)
def target(request: pytest.FixtureRequest, sqlite_engine_factory: EngineFactory) -> Target:
    engine: Any = sqlite_engine_factory(storage="disk")
    # Only where expiry is the question: the other tests may take longer than that.
    ttl_s = TTL_S if request.function.holdfast_promise == "expiring" else None
    return Target(
        open=lambda: DOORS[request.param](engine.url, ttl_s=ttl_s),
        engine=engine,
        name=f"holdfast on SQLite, {request.param}",
        ttl_s=ttl_s,
        claims=Claims(recallable=NotClaimed("there is no recall yet")),
    )
