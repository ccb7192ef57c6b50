"""The check cuts the power: what SIGKILL cannot show is shown, and what is sound is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import VerifyError
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines import start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios import ScenarioContext, power
from holdfast.verify.spec import TargetSpec, view_of
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from tests.verify.check.checking import broken, run, tell

pytestmark = pytest.mark.usefixtures("can_cut")
POWER: dict[str, Any] = {"faults": ("power",), "promises": ("durable",), "seed": 5, "time_s": 10}


def test_our_store_on_sqlite_keeps_what_it_acknowledged_and_says_what_was_cut():
    result = run("sqlite", None, **POWER)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    tally = result.faults["power"]
    facts = result.promises["durable"].evidence["scenarios"]["power-cut"]["power"]
    assert tally.landed == facts["cuts"] == 3
    assert facts["mechanism"] == "block"
    assert facts["in_flight"] == tally.in_flight
    assert facts["unsynced_bytes"] > 0
    assert "3 power cuts (block)" in result.promises["durable"].because
    assert result.counts["acknowledged"] > 0


def test_a_store_that_acknowledges_before_the_disk_has_it_is_caught_by_the_power_cut_alone():
    killed = run("never_syncs", **{**POWER, "faults": ("kill",)})
    assert "durable" not in broken(killed), tell(killed)
    assert killed.counts["lost"] == 0
    cut = run("never_syncs", **POWER)
    assert "durable" in broken(cut), tell(cut)
    assert cut.counts["lost"] > 0


def test_redis_that_syncs_every_second_is_shown_losing():
    result = run("redis", None, config="aof-everysec", **POWER)
    assert "durable" in broken(result), tell(result)
    assert result.exit_code == 1


def test_postgres_keeps_what_it_acknowledged():
    result = run("postgres", None, **POWER)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)


def test_whoever_requires_less_than_the_disk_is_not_told_of_a_loss():
    result = run("redis", None, require="PROCESS", **POWER)
    assert "may lose what was acknowledged" in (result.faults["power"].not_run or ""), tell(result)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN


def test_a_machine_that_allows_no_cut_is_named_and_not_held_against_the_store(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse() -> Any:
        raise VerifyError("the power cannot be cut on this machine. block: needs root")

    power.why_not.cache_clear()
    monkeypatch.setattr(power, "open_supply", refuse)
    try:
        result = run("sqlite", None, **{**POWER, "faults": ("power",)})
    finally:
        power.why_not.cache_clear()
    assert "needs root" in (result.faults["power"].not_run or "")
    assert result.promises["durable"].verdict is Verdict.UNKNOWN


def test_an_engine_that_does_not_come_back_has_lost_everything(
    postgres_engine_factory: EngineFactory,
):
    engine = postgres_engine_factory()
    engine.kill()
    (engine.data_dir / "global" / "pg_control").write_bytes(b"")
    with pytest.raises(VerifyError, match="does not start any more after a power cut") as gone:
        power.come_back(engine)
    assert "pg_control" in str(gone.value)
    outcome = power.PowerCut()._lost_all(gone.value)
    assert [(f.promise, f.verdict) for f in outcome.findings] == [("durable", Verdict.BROKEN)]


def test_what_was_acknowledged_after_the_instant_of_the_cut_is_owed_by_nobody(tmp_path: Path):
    cut = power.PowerCut()
    cut._cuts = power._Cuts()
    with start_engine("redis", power="best") as engine:
        spec, bounds = TargetSpec("redis", engine=view_of(engine)), Bounds()
        context = ScenarioContext(
            spec=spec, engine=engine, seed=1, folder=tmp_path, bounds=bounds, scale=1.0,
            about={"not_claimed": {}}, say=lambda _: None,
        )  # fmt: skip
        with ClientPool(spec, tmp_path, name="cut", seed=1, bounds=bounds) as clients:
            away = cut.strike(context, clients, lambda: True)
            assert away.began_ns == away.evidence.facts["at_ns"] < clients.faults[-1].time_ns
