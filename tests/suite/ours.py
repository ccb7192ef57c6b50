"""Our own store on any engine, as a target, through either door."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.verify import Target
from holdfast.verify.indexes import Hashes, index_of
from holdfast.verify.scenarios.power import why_not
from holdfast.verify.spec import whole_turns
from tests.recall.models import wordllama

APIS = {"sync": holdfast.connect, "async": holdfast.connect_async}
TTL_S = 0.6
WEEK_S = 7 * 24 * 3600.0
POWER = "test_messages_survive_a_power_cut"
CLOCK = "test_a_long_time_to_live_passes_on_the_clock_of_the_engine"


def wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the engine must have besides, for the tests that need it."""
    asked = request.function.__name__
    if asked == POWER and why_not() is None:
        return {"power": "best"}
    return {"clock": True} if asked == CLOCK else {}


def our_target(request: pytest.FixtureRequest, engine: Any, url: str | None = None) -> Target:
    """Only where expiry is the question has it a time to live: other tests may take longer."""
    ttl_s = TTL_S if request.function.holdfast_promise == "expiring" else None
    ttl_s = WEEK_S if request.function.__name__ == CLOCK else ttl_s
    api = APIS[request.param]
    url = engine.url if url is None else url
    return Target(
        open=lambda: api(url, ttl_s=ttl_s, embedder=wordllama()),
        engine=engine,
        name=f"holdfast on {engine.kind}, {request.param}",
        ttl_s=ttl_s,
        whole_turns=whole_turns,
        index=index_of(url, "default", lambda: api(url, embedder=Hashes())),
    )
