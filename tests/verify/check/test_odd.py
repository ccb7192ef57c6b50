"""What is sound but odd raises no alarm, and a check ends whatever a target or an engine does."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.verify import Target
from holdfast.verify.adapters import plain
from holdfast.verify.engines import start_engine
from holdfast.verify.faults import tree
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios import CrashAtLine, Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.explore import PowerExplore
from holdfast.verify.workload import reader
from tests.verify.check.checking import broken, run, tell
from tests.verify.check.odd_stores import Refuses
from tests.verify.check.stores import KEEPS
from tests.waiting import wait_until

ODD = "tests.verify.check.odd_stores"
SOON: dict[str, Any] = {"seed": 1, "time_s": 3}


def test_a_store_that_often_and_honestly_refuses_is_faithful():
    result = run(f"{ODD}:refuses", **SOON, faults=("none",), promises=("faithful",))
    assert result.promises["faithful"].verdict is Verdict.KEPT, tell(result)
    assert "a damaged record, which was named" in result.promises["faithful"].because


def test_a_refusal_after_a_crash_at_a_line_is_no_store_that_does_not_work_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (CrashAtLine(),))
    result = run(f"{ODD}:refuses", seed=1, promises=("loud", "exactly-once"))
    assert result.faults["crash-at-line"].landed, tell(result)
    assert not broken(result), tell(result)


def test_a_session_that_expired_before_it_was_read_is_not_lost():
    asked = {**SOON, "faults": ("kill",), "require": "PROCESS"}
    result = run(f"{ODD}:brief", **asked, promises=("durable", "atomic", "ordered"))
    assert not broken(result), tell(result)


def test_crash_states_are_not_visited_after_their_sessions_expired():
    asked = {**SOON, "faults": ("power-explore",), "promises": ("durable",)}
    result = run(f"{ODD}:brief", **asked)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "sessions live 0.5 s" in (result.faults[PowerExplore.fault].not_run or "")


class Endless(Scenario):
    """Waits for what never comes, and so does what cleans up after it."""

    name = "endless"
    tests = ("durable",)

    def run(self, context: ScenarioContext) -> Outcome:
        with context.clients(self) as clients:
            clients.start(shape=context.shape(self.name))
            try:
                threading.Event().wait()
            finally:
                threading.Event().wait()
        raise AssertionError


def test_a_scenario_that_does_not_end_is_ended_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (Endless(), CrashAtLine()))
    monkeypatch.setattr("holdfast.verify.watchdog.REPEAT_S", 1.0)
    monkeypatch.setattr("holdfast.verify.check.GRACE_S", 1.0)
    monkeypatch.setattr("holdfast.verify.check_options.LATE_S_MIN", 1.0)
    start_engine("sqlite").close()  # the reaper, which stays as long as we do, is there from now on
    begin, before = time.monotonic(), set(tree(os.getpid()))
    result = run("sqlite", None, seed=1, time_s=1, promises=("durable",))
    assert time.monotonic() - begin < 60
    assert result.exit_code == 3
    assert "endless did not end within" in result.promises["durable"].because, tell(result)
    wait_until(lambda: set(tree(os.getpid())) <= before)


def test_a_refused_read_of_a_crash_state_is_no_loss(tmp_path: Path):
    target = Target(open=lambda: Refuses(str(tmp_path / "memory.db")), claims=KEEPS)
    with plain.Client(target) as client:
        client.append("s", [{"id": "1", "role": "user", "content": "here"}])
        seen = [reader._read(client, "s") for _ in range(20)]
    assert seen == [{"session": "s", "messages": ["1"]}] * 20


def test_a_store_that_lets_no_second_process_in_is_judged_with_one():
    promises = ("durable", "ordered", "atomic", "faithful", "loud")
    asked = {**SOON, "time_s": 15, "require": "PROCESS", "promises": promises}
    result = run(f"{ODD}:one_at_a_time", faults=("kill", "disk"), **asked)
    verdicts = {promise: one.verdict for promise, one in result.promises.items()}
    assert verdicts == dict.fromkeys(promises, Verdict.KEPT), tell(result)
    assert "several at once (it serves one process at a time" in result.promises["ordered"].because


@pytest.mark.usefixtures("can_cut")
def test_and_with_one_its_power_is_cut():
    result = run(f"{ODD}:one_unsynced", **SOON, faults=("power",), promises=("durable",))
    assert "durable" in broken(result), tell(result)


def test_who_loses_under_concurrency_is_then_judged_with_one_client():
    result = run(
        "lost_update", seed=1, time_s=12, faults=("kill",), promises=("durable", "ordered")
    )
    scenarios = result.promises["durable"].evidence["scenarios"]
    assert "durable" in broken(result), tell(result)
    assert scenarios["kill-clients"]["verdict"] == "kept", tell(result)
