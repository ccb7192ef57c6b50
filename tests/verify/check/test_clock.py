"""Seven days pass within moments: the five-minute memory is caught, and so is application time."""

from __future__ import annotations

import pytest

from holdfast.verify.check import Order, check
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from tests.verify.check.checking import Notes, tell

STORES = "tests.verify.check.clock_stores"


def moved(name: str, kind: str | None, promise: str) -> CheckResult:
    target = name if kind is None else f"{STORES}:{name}"
    return check(
        Order(target=target, engine=kind, seed=3, faults=("clock",), promises=(promise,)), Notes()
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("five_minutes_redis", "redis"),
        ("five_minutes_postgres", "postgres"),
        ("five_minutes_file", "sqlite"),
    ],
)
def test_a_session_that_claims_a_week_and_lives_five_minutes_is_caught(name: str, kind: str):
    result = moved(name, kind, "expiring")
    found = result.promises["expiring"]
    assert found.verdict is Verdict.BROKEN, tell(result)
    assert found.because.startswith("expired-early"), found.because
    assert result.faults["clock"].landed >= 4


def test_a_session_that_never_expires_is_caught():
    found = moved("for_ever_redis", "redis", "expiring").promises["expiring"]
    assert found.verdict is Verdict.BROKEN
    assert found.because.startswith("expired-late"), found.because


def test_a_write_that_does_not_refresh_is_caught():
    found = moved("first_write_counts", "sqlite", "expiring").promises["expiring"]
    assert found.verdict is Verdict.BROKEN
    assert found.because.startswith("expired-early"), found.because


@pytest.mark.parametrize(
    ("name", "kind"),
    [("week_redis", "redis"), ("week_postgres", "postgres"), ("week_file", "sqlite")],
)
def test_a_sound_store_with_a_week_to_live_raises_no_alarm(name: str, kind: str):
    result = moved(name, kind, "expiring")
    assert result.promises["expiring"].verdict is Verdict.KEPT, tell(result)


@pytest.mark.parametrize("target", ["sqlite", "redis", "valkey", "postgres"])
def test_our_store_lives_its_week_and_keeps_its_order_whatever_any_clock_says(target: str):
    result = check(
        Order(target=target, seed=5, faults=("clock",), promises=("expiring", "ordered")), Notes()
    )
    assert result.verdict is Verdict.KEPT, tell(result)
    assert "604800 s to live" in result.promises["expiring"].because
    assert "step back" in result.promises["ordered"].because


@pytest.mark.parametrize(
    ("name", "kind"), [("created_at_file", "sqlite"), ("created_at_postgres", "postgres")]
)
def test_order_made_of_application_timestamps_is_caught_by_hosts_that_drifted(name: str, kind: str):
    result = moved(name, kind, "ordered")
    assert result.promises["ordered"].verdict is Verdict.BROKEN, tell(result)
    assert any(
        anomaly["scenario"] == "clock-drift" for anomaly in result.promises["ordered"].anomalies
    )
