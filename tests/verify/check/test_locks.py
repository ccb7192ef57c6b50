"""Versions that are tried too seldom, and locks that end before whoever has them."""

from __future__ import annotations

import pytest

from holdfast.verify.engines import start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios import Scenario
from holdfast.verify.scenarios.held_lines import HeldAtLine
from tests.verify.check.scene import Played, play

STORES = "tests.verify.check.lock_stores"


def play_on(scenario: Scenario, name: str) -> Played:
    with start_engine("redis") as engine:
        return play(scenario, f"{STORES}:{name}", "redis", engine=engine)


def test_a_store_that_gives_up_and_does_not_say_so_is_caught():
    found = play_on(HeldAtLine(), "gives_up_quietly").of("durable")
    assert found.verdict is Verdict.BROKEN, found


def test_a_lock_that_ends_before_whoever_has_it_is_caught():
    played = play_on(HeldAtLine(), "leased")
    found = played.of("durable")
    assert found.verdict is Verdict.BROKEN, found
    assert "was acknowledged" in found.because
    assert any("held at" in seen for seen in played.tallies["pause"].seen)


@pytest.mark.parametrize("name", ["fenced", "gives_up_aloud"])
def test_one_that_looks_again_when_it_writes_or_says_that_it_gave_up_is_sound(name: str):
    played = play_on(HeldAtLine(), name)
    assert {finding.verdict for finding in played.findings} == {Verdict.KEPT}, played.findings
