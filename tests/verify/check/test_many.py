"""Many threads or tasks in one client: what only a service does, under load, kills and power cuts."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.check import CheckOptions, check
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from holdfast.verify.scenarios.power import why_not
from tests.verify.check.checking import Notes, tell

STORES = "tests.verify.check.many_stores"


def run(name: str, **asked: Any) -> CheckResult:
    return check(CheckOptions(target=f"{STORES}:{name}", engine="sqlite", **asked), Notes())


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_writes_of_a_group_that_are_not_synced_are_lost_at_a_power_cut():
    result = run("groups_unsynced", seed=7, promises=("durable",), faults=("power",))
    assert result.promises["durable"].verdict is Verdict.BROKEN, tell(result)


def test_tasks_that_share_one_transaction_tear_one_another():
    result = run("tasks_one_transaction", seed=7, promises=("atomic",), faults=("none",))
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)


@pytest.mark.parametrize("name", ["grouped", "tasks_one_by_one"])
def test_sound_stores_that_are_shared_raise_no_alarm(name: str):
    promises = ("durable", "atomic", "ordered", "snapshot", "fresh", "exactly-once")
    faults = ("kill",) if why_not() else ("kill", "power")
    result = run(name, seed=7, promises=promises, faults=faults, time_s=15)
    assert result.verdict is Verdict.KEPT, tell(result)
