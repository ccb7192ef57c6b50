"""Long sessions, the same words again, numbers, size: what small and different texts never show."""

from __future__ import annotations

import pytest

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios import load
from tests.verify.check.checking import Notes, tell

STORES = "tests.verify.check.content_stores"


@pytest.mark.parametrize(
    ("name", "promise", "scenario", "words"),
    [
        ("capped", "durable", "long-session", ""),
        ("pages", "forgotten", "long-session", ""),
        ("said_once", "faithful", "odd-content", "the same words again"),
        ("doubles", "faithful", "odd-content", "numbers in a field of its own"),
        ("truncates", "faithful", "odd-content", "16 megabytes"),
    ],
)
def test_what_only_long_large_or_equal_messages_show_is_caught(
    name: str, promise: str, scenario: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(load, "LONG_S", 60.0)  # a busy machine gets there, too
    target = f"{STORES}:{name}"
    asked = (promise, "snapshot") if scenario == "long-session" else (promise,)
    options = CheckOptions(target=target, engine="sqlite", seed=7, promises=asked, faults=("none",))
    result = check(options, Notes())
    assert result.promises[promise].verdict is Verdict.BROKEN, tell(result)
    found = result.promises[promise].evidence["scenarios"][scenario]
    assert found["verdict"] == "broken", found
    assert words in result.promises[promise].because
