"""Seven days pass within moments: the five-minute memory is caught, and so is application time."""

from __future__ import annotations

import pytest

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios.expiry_lines import ExpiryAtLine
from holdfast.verify.scenarios.moved_clock import ClockDrift, ClockExpiry
from tests.verify.check.checking import Notes, tell
from tests.verify.check.scene import play

STORES = "tests.verify.check.clock_stores"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("five_minutes_redis", "redis"),
        ("five_minutes_postgres", "postgres"),
        ("five_minutes_file", "sqlite"),
    ],
)
def test_a_session_that_claims_a_week_and_lives_five_minutes_is_caught(name: str, kind: str):
    played = play(ClockExpiry(), f"{STORES}:{name}", kind)
    found = played.of("expiring")
    assert found.verdict is Verdict.BROKEN, found
    assert found.because.startswith("expired-early"), found.because
    assert played.tallies["clock"].landed >= 4


def test_a_session_that_never_expires_is_caught():
    found = play(ClockExpiry(), f"{STORES}:for_ever_redis", "redis").of("expiring")
    assert found.verdict is Verdict.BROKEN, found
    assert found.because.startswith("expired-late"), found.because


def test_a_write_that_does_not_refresh_is_caught():
    found = play(ClockExpiry(), f"{STORES}:first_write_counts", "sqlite").of("expiring")
    assert found.verdict is Verdict.BROKEN, found
    assert found.because.startswith("expired-early"), found.because


@pytest.mark.parametrize(
    ("name", "kind"), [("expires_next", "redis"), ("notes_the_end_next", "sqlite")]
)
def test_a_session_that_a_crash_leaves_without_an_end_is_caught(name: str, kind: str):
    found = play(ExpiryAtLine(), f"{STORES}:{name}", kind).of("expiring")
    assert found.verdict is Verdict.BROKEN, found
    assert "still there when its time to live is over" in found.because


def test_the_same_is_caught_where_a_short_time_to_live_is_waited_for():
    with start_engine("redis") as engine:
        found = play(ExpiryAtLine(), f"{STORES}:expires_next_briefly", "redis", engine=engine)
    assert found.of("expiring").verdict is Verdict.BROKEN, found.findings
    assert "self._redis.expire(" in found.of("expiring").because


def test_where_no_crash_leaves_a_session_nothing_is_said():
    """One transaction writes it with its end: there is no evidence, so there is no "kept"."""
    assert play(ExpiryAtLine(), f"{STORES}:week_file", "sqlite").findings == []


def test_redis_is_seen_to_expire_lazily_and_actively():
    played = play(ClockExpiry(), f"{STORES}:week_redis", "redis")
    assert played.of("expiring").verdict is Verdict.KEPT, played.findings
    assert any("by itself" in seen for seen in played.tallies["clock"].seen)


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_our_store_lives_its_week_on_the_clock_of_its_server(kind: str):
    played = play(ClockExpiry(), kind, kind)
    assert played.of("expiring").verdict is Verdict.KEPT, played.findings
    assert "604800 s to live" in played.of("expiring").because


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_our_store_keeps_its_order_whatever_any_clock_says(kind: str):
    found = play(ClockDrift(), kind, kind).of("ordered")
    assert found.verdict is Verdict.KEPT, found
    assert "step back" in found.because


def test_the_check_of_the_embedded_default_moves_clocks():
    options = CheckOptions(
        target="sqlite", seed=5, faults=("clock",), promises=("expiring",), time_s=10
    )
    result = check(options, Notes())
    assert result.verdict is Verdict.KEPT, tell(result)
    assert "604800 s to live" in result.promises["expiring"].because
    assert result.faults["clock"].landed >= 4


@pytest.mark.parametrize(
    ("name", "kind"), [("created_at_file", "sqlite"), ("created_at_postgres", "postgres")]
)
def test_order_made_of_application_timestamps_is_caught_by_hosts_that_drifted(name: str, kind: str):
    found = play(ClockDrift(), f"{STORES}:{name}", kind).of("ordered")
    assert found.verdict is Verdict.BROKEN, found
    assert found.anomalies
