"""What the judge says of a broken store is so, and names the promise that the store breaks."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.history import Header, event_json, header_json, parse_history
from holdfast.verify.judge import judge
from holdfast.verify.workload import plan
from tests.twins import broken_postgres, broken_redis, broken_sqlite
from tests.twins.targets import target_of
from tests.twins.test_seeds import history
from tests.verify.judge.sentences import untrue
from tests.verify.judge.writing import roots

SEEDS = 5 if "HOLDFAST_TORTURE_MINUTES" in os.environ else 1
TWINS: tuple[Any, ...] = (
    *broken_sqlite.BROKEN, *broken_redis.BROKEN, *broken_postgres.BROKEN,
)  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
def test_every_sentence_about_a_broken_store_is_so(
    twin: type[Any], engine_factory: EngineFactory
) -> None:
    target = target_of(twin, engine_factory, "durable")
    for seed in range(SEEDS):
        # The one who is killed only writes: what was acknowledged too early is then lost. That
        # shows only where nobody forgets the session afterwards.
        forgets = twin.promise != "durable"
        shape = plan.Shape(f"said-{seed}", keyed=twin.claims.exactly_once is True, forgets=forgets)
        killed = replace(shape, appends_only=True)
        events = sorted(history(target, seed, shape, killed), key=lambda event: event.time_ns)
        lines = [header_json(Header(twin.__name__)), *map(event_json, events)]
        made = parse_history(json.dumps(line).encode() + b"\n" for line in lines)

        result = judge(made)

        assert [clause for a in result.anomalies for clause in untrue(made, a)] == []
        assert {a.promise for a in roots(result)} <= {twin.promise}, seed
