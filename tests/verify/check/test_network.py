"""An answer is late or lost: with and without keys, at every request of an append."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.check import CheckOptions, check
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from tests.verify.check.checking import Notes, tell

STORES = "tests.verify.check.network_stores"


def run(target: str, **asked: Any) -> CheckResult:
    return check(CheckOptions(target=target, **asked), Notes())


@pytest.mark.parametrize(
    ("name", "fault", "promise"),
    [
        ("driver_retries", "lost-ack", "faithful"),
        ("notes_key_last", "lost-ack", "exactly-once"),
        ("reuses_connection", "pause", "isolated"),
    ],
)
def test_a_store_that_mistakes_a_late_or_lost_answer_is_caught(name: str, fault: str, promise: str):
    asked = ("durable", "loud", promise)
    result = run(f"{STORES}:{name}", engine="redis", seed=7, promises=asked, faults=(fault,))
    assert result.promises[promise].verdict is Verdict.BROKEN, tell(result)


def test_a_sound_store_without_keys_loses_answers_and_is_kept():
    asked: dict[str, Any] = {"promises": ("durable", "loud"), "faults": ("lost-ack", "pause")}
    result = run(f"{STORES}:keyless", engine="redis", seed=7, **asked)
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["lost-ack"].landed >= 4


@pytest.mark.parametrize("target", ["redis", "postgres"])
def test_each_request_of_an_append_loses_its_answer_and_ours_is_written_once(target: str):
    asked = ("exactly-once", "durable", "loud")
    result = run(target, seed=7, promises=asked, faults=("lost-ack",))
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["lost-ack"].landed >= 4
