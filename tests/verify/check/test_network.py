"""An answer is late or lost: with and without keys, at every request of an append."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from holdfast.verify.check import STUCK_AGAIN_S, check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.proof import await_true
from holdfast.verify.result import CheckResult
from holdfast.verify.scenarios import Scenario
from holdfast.verify.scenarios.engine_faults import KillEngine, NetworkCut
from holdfast.verify.scenarios.lost_ack import LostAck
from tests.verify.check.checking import Notes, tell
from tests.verify.check.scene import play

STORES = "tests.verify.check.network_stores"


def run(target: str, **asked: Any) -> CheckResult:
    return check(CheckOptions(target=target, **asked), Notes())


@pytest.mark.parametrize(
    ("name", "fault", "promise"),
    [
        ("driver_retries", "lost-ack", "faithful"),
        ("notes_key_last", "lost-ack", "exactly-once"),
        ("reuses_connection", "pause", "isolated"),
        ("cancelled_in_the_middle", "pause", "isolated"),
    ],
)
def test_a_store_that_mistakes_a_late_or_lost_answer_is_caught(name: str, fault: str, promise: str):
    asked = ("durable", "loud", promise)
    result = run(f"{STORES}:{name}", engine="redis", seed=7, promises=asked, faults=(fault,))
    assert result.promises[promise].verdict is Verdict.BROKEN, tell(result)


def test_a_sound_store_without_keys_loses_answers_and_is_kept():
    asked: dict[str, Any] = {"promises": ("durable", "loud"), "faults": ("lost-ack", "pause")}
    asked["require"] = "MEMORY"  # nothing is killed here
    result = run(f"{STORES}:keyless", engine="redis", seed=7, **asked)
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["lost-ack"].landed >= 4


@pytest.mark.parametrize("scenario", [KillEngine(), NetworkCut()], ids=lambda one: one.name)
def test_an_ack_while_the_engine_could_not_be_reached_is_a_swallowed_error(scenario: Scenario):
    with start_engine("redis", config="aof-always", storage="disk") as engine:
        found = play(scenario, f"{STORES}:swallows", "redis", scale=0.5, engine=engine)
    assert found.of("loud").verdict is Verdict.BROKEN, found.findings
    assert "while its engine could not be reached, an append was ack" in found.of("loud").because


def test_an_engine_that_comes_back_empty_was_not_silent(monkeypatch: pytest.MonkeyPatch):
    """It answers before whoever started it knows: forced here, since that is a moment only."""
    with start_engine("redis", config="no-persistence", storage="disk") as engine:
        start = type(engine).start

        def start_and_be_asked(self: Any) -> Any:
            start(self)
            with redis.Redis.from_url(self.url) as server:
                await_true(lambda: server.info("commandstats").get("cmdstat_lrange"), 10)
            return self

        monkeypatch.setattr(type(engine), "start", start_and_be_asked)
        asked: dict[str, Any] = {"config": "no-persistence", "scale": 0.5, "engine": engine}
        found = play(KillEngine(), f"{STORES}:keyless", "redis", **asked)
    assert found.of("durable").verdict is Verdict.BROKEN, found.findings
    assert found.of("loud").verdict is Verdict.KEPT, found.findings


@pytest.mark.parametrize("target", ["redis", "postgres"])
def test_each_request_of_an_append_loses_its_answer_and_ours_is_written_once(target: str):
    asked = ("exactly-once", "durable", "loud")
    result = run(target, seed=7, promises=asked, faults=("lost-ack",), require="MEMORY")
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["lost-ack"].landed >= 4


def test_a_store_that_is_stuck_after_one_outage_leaves_the_time_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
):
    """That it does not come back is known after the first: no later scenario waits as long."""
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (KillEngine(), NetworkCut()))
    store = "tests.verify.check.redis_stores:never_reconnects"
    result = run(store, engine="redis", seed=1, time_s=5, promises=("loud",))
    assert "does not work again by itself" in result.promises["loud"].because, tell(result)
    said = result.promises["loud"].evidence["scenarios"]
    assert said["kill-engine"]["waited_s"] == 5
    assert said["network-cut"]["waited_s"] == STUCK_AGAIN_S


@pytest.mark.parametrize(
    ("name", "verdict"), [("one_by_one", Verdict.BROKEN), ("keyless", Verdict.KEPT)]
)
def test_a_request_that_is_cut_in_the_middle_tears_who_sends_a_batch_message_by_message(
    name: str, verdict: Verdict
):
    with start_engine("redis") as engine:
        played = play(LostAck(), f"{STORES}:{name}", "redis", engine=engine)
    assert played.of("atomic").verdict is verdict, played.findings
    assert any("of them went to the engine" in seen for seen in played.tallies["lost-ack"].seen)
