"""Crash states of one run: whoever syncs before the ack holds in all of them, others are caught."""

from __future__ import annotations

import pytest

from holdfast.verify.check import Order, check
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from tests.verify.check.checking import Notes, tell

FILES = "tests.verify.check.files"


def explore(target: str, engine: str | None = None, **asked: object) -> CheckResult:
    order = Order(
        target=target,
        engine=engine,
        seed=5,
        faults=("power-explore",),
        promises=("durable",),
        time_s=5,
        **asked,  # type: ignore[arg-type]
    )
    return check(order, Notes())


@pytest.mark.parametrize(
    ("target", "engine"), [("sqlite", None), ("redis", None), (f"{FILES}:synced_rename", "sqlite")]
)
def test_who_syncs_before_the_ack_holds_in_every_state(target: str, engine: str | None):
    result = explore(target, engine)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    evidence = result.promises["durable"].evidence["scenarios"]["power-explore"]
    assert evidence["states"] == result.faults["power-explore"].landed >= 5
    assert evidence["dropped_bytes"] > 0  # something was under way, and lost
    assert set(evidence["losses"]) > {"dropped"}


@pytest.mark.parametrize(
    ("target", "engine", "config"),
    [
        ("redis", None, "aof-everysec"),
        (f"{FILES}:sync_off", "sqlite", None),
        (f"{FILES}:unsynced_rename", "sqlite", None),
    ],
)
def test_who_does_not_is_caught_and_the_state_is_told(
    target: str, engine: str | None, config: str | None
):
    result = explore(target, engine, config=config)
    durable = result.promises["durable"]
    assert durable.verdict is Verdict.BROKEN, tell(result)
    assert "crash states break it" in durable.because
    states = durable.evidence["scenarios"]["power-explore"]["states_broken"]
    assert {"at_ms", "when", "loss", "seed", "acknowledged"} <= states[0].keys()
    assert result.exit_code == 1


def test_data_that_are_kept_elsewhere_leave_the_verdict_unknown():
    result = explore(f"{FILES}:elsewhere", "sqlite")
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "elsewhere" in result.promises["durable"].because
