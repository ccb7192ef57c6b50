"""A disk that fails: no ack that it did not earn, no empty memory in place of an error."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios.failing_disk import FailedRead, FailedSync
from holdfast.verify.scenarios.full_disk import DiskFull
from holdfast.verify.scenarios.outage import swallowed
from tests.verify.check.checking import Notes, tell
from tests.verify.check.scene import play

STORES = "tests.verify.check.disk_stores"


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_our_store_acknowledges_nothing_that_the_disk_refused(kind: str):
    played = play(FailedSync(), kind, kind, level="DISK")
    assert played.of("durable").verdict is Verdict.KEPT, played.findings
    assert played.of("loud").verdict is Verdict.KEPT, played.findings
    assert "fsyncs failed with EIO" in played.tallies["disk"].seen[0]
    assert "calls were slow" in played.tallies["disk"].seen[1]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_our_store_never_calls_an_unreadable_memory_empty(kind: str):
    played = play(FailedRead(), kind, kind, level="DISK")
    assert played.of("loud").verdict is Verdict.KEPT, played.findings
    assert "reads failed with EIO" in played.tallies["disk"].seen[0]


def test_an_ack_that_the_disk_refused_is_caught():
    played = play(FailedSync(), f"{STORES}:shrugs_at_sync", "sqlite")
    broken = [f for f in played.findings if f.verdict is Verdict.BROKEN and f.promise == "durable"]
    assert any("acknowledged while the disk refused every fsync" in f.because for f in broken)
    assert any(f.because.startswith(("lost", "rollback")) for f in broken), broken


def test_an_ack_after_a_later_fsync_that_worked_is_caught():
    found = play(FailedSync(), f"{STORES}:tries_again", "sqlite").of("durable")
    assert found.verdict is Verdict.BROKEN, found
    assert found.because.startswith(("lost", "rollback")), found.because


def test_an_unreadable_memory_that_is_called_empty_is_caught():
    found = play(FailedRead(), f"{STORES}:empty_if_unreadable", "sqlite").of("loud")
    assert found.verdict is Verdict.BROKEN, found
    assert "instead of an error" in found.because


def test_an_ack_of_what_a_full_disk_refused_is_a_swallowed_error():
    with start_engine("sqlite", storage="disk") as engine:
        found = play(DiskFull(), f"{STORES}:swallows", "sqlite", scale=0.2, engine=engine)
    assert found.of("loud").verdict is Verdict.BROKEN, found.findings
    assert "while the disk was full" in found.of("loud").because


def test_what_an_engine_had_while_its_disk_was_full_and_lost_later_was_not_swallowed():
    ids, other = ["m.0"], ["m.1"]
    told = [
        _asked(1, 10, "append", messages=ids), _told(1, 12),
        _asked(2, 13, "history"), _told(2, 14, messages=ids),
        _asked(3, 15, "append", messages=other), _told(3, 16),
        _asked(4, 17, "history", limit=1), _told(4, 18, messages=ids),
        _asked(5, 30, "history"), _told(5, 31, messages=[]),
    ]  # fmt: skip
    assert swallowed(told, 5, 20, at_once=True) == []
    assert swallowed(told, 5, 20, at_once=False) == [3]


@pytest.mark.parametrize(
    ("begun_ns", "end", "hides"),
    [
        (40, {}, False),  # after the read that lacks it
        (25, {}, True),
        (25, {"type": "ok", "time_ns": 26}, True),
        (25, {"type": "fail", "time_ns": 26}, False),
        (8, {"type": "ok", "time_ns": 9}, False),  # over before the append
        (8, {"type": "info", "time_ns": 9}, True),  # it may come yet
    ],
)
def test_what_a_forget_may_have_removed_was_not_swallowed(
    begun_ns: int, end: dict[str, Any], hides: bool
):
    told = [
        _asked(3, 15, "append", messages=["m.1"]), _told(3, 16),
        _asked(5, 30, "history"), _told(5, 31, messages=[]),
        _asked(6, begun_ns, "forget"), *([{"op": 6, **end}] if end else []),
    ]  # fmt: skip
    assert swallowed(told, 5, 20, at_once=False) == ([] if hides else [3])


def test_a_retry_of_what_was_written_and_forgotten_before_was_not_swallowed():
    told = [
        _asked(1, 1, "append", messages=["m.1"]), _told(1, 2),
        _asked(2, 3, "forget"), _told(2, 4),
        _asked(3, 15, "append", messages=["m.1"]), _told(3, 16),
        _asked(5, 30, "history"), _told(5, 31, messages=[]),
    ]  # fmt: skip
    assert swallowed(told, 5, 20, at_once=False) == []


def _asked(op: int, time_ns: int, f: str, **fields: Any) -> dict[str, Any]:
    return {"type": "invoke", "op": op, "time_ns": time_ns, "f": f, "session": "s", **fields}


def _told(op: int, time_ns: int, **fields: Any) -> dict[str, Any]:
    return {"type": "ok", "op": op, "time_ns": time_ns, **fields}


def test_data_on_temporary_storage_are_named_and_never_called_durable():
    with start_engine("sqlite", storage="memory") as engine:
        options = CheckOptions(
            target=engine.url, seed=1, faults=("kill",), promises=("durable",), time_s=2
        )
        result = check(options, Notes())
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "temporary storage (tmpfs)" in result.promises["durable"].because
