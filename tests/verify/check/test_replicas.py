"""A target hears where its engine's replicas are, and is judged on what it reads there."""

from __future__ import annotations

import json

import pytest

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.protocol import Replicable
from holdfast.verify.judge import Verdict
from holdfast.verify.spec import TargetSpec, view_of
from tests.verify.check.checking import run, tell

STORES = "tests.verify.check.replica_stores"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("reads_replica", Verdict.KEPT), ("reads_late_replica", Verdict.BROKEN)],
)
def test_a_store_that_reads_a_replica_is_judged_on_what_that_shows(name: str, verdict: Verdict):
    result = run(
        f"{STORES}:{name}", "postgres", config="replica", seed=7, promises=("fresh",),
        faults=("none",), time_s=10,
    )  # fmt: skip
    assert result.promises["fresh"].verdict is verdict, tell(result)


def test_replicas_go_to_a_client_process_and_have_the_addresses_of_the_engines():
    with start_engine("redis") as engine:
        assert isinstance(engine, Replicable)
        copy = engine.replica()
        spec = TargetSpec("stores:any", engine=view_of(engine))
        there = TargetSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert there == spec
        assert there.engine is not None
        assert [one.url for one in there.engine.replicas] == [copy.url]
