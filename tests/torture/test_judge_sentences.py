"""The judge's word, in full: simulated stores with one defect, and 100,000 broken histories.

Each part has seeds of its own (`-k "part-7"`), and goes on where the last run stopped (`counts`).
"""

from __future__ import annotations

import json
import os

import pytest

from holdfast.verify.judge import judge
from tests.torture.counts import Counts
from tests.verify.judge.planned import KINDS
from tests.verify.judge.sentences import untrue
from tests.verify.judge.test_roots import SIMULATORS, accusations, check_planned, meddled

PARTS = pytest.mark.parametrize("part", range(20), ids=lambda part: f"part-{part}")
BROKEN_EACH = 5_000
SEEDS = {"changed instants": 320, "mistakes in code": 140, "planned times": 8_000}
"""So many make more than 2,000 broken sessions."""
PLANNED_EACH = 500
CHUNK = 50

pytestmark = [
    pytest.mark.skipif(
        "HOLDFAST_TORTURE_MINUTES" not in os.environ, reason="long: run it with make torture"
    ),
    pytest.mark.timeout(1800),
]


@PARTS
def test_no_sentence_is_false_on_a_hundred_thousand_broken_histories(part: int) -> None:
    counts = Counts(f"sentences-part-{part}", BROKEN_EACH)
    while counts.left:
        number = counts.more.get("judged", 0)
        history = meddled(f"torture-{part}-{number}")
        anomalies = judge(history).anomalies
        false = [words for anomaly in anomalies for words in untrue(history, anomaly)]
        if false:
            counts.add(failures=1)
        assert false == [], number
        counts.add(int(bool(anomalies)), judged=1)
    print(counts)


@pytest.mark.parametrize("how", SIMULATORS)
def test_simulated_stores_are_accused_of_their_own_defect(how: str) -> None:
    seeds = (f"torture-{number}" for number in range(SEEDS[how]))
    tally, false = accusations(SIMULATORS[how](seeds))

    print(json.dumps(tally))
    assert false == []
    assert tally["broken"] >= 2_000
    assert tally["one"] >= 0.98 * tally["broken"]
    assert tally["right"] >= 0.95 * tally["broken"]


@PARTS
@pytest.mark.parametrize("name", KINDS)
def test_the_judge_can_prove_what_it_says_of_any_history(name: str, part: int) -> None:
    counts = Counts(f"planned-{name.replace(' ', '-')}-part-{part}", PLANNED_EACH)
    while counts.left:
        numbers = range(counts.done, counts.done + min(CHUNK, counts.left))
        try:
            check_planned(name, (f"torture-{part}-{number}" for number in numbers))
        except AssertionError:
            counts.add(failures=1)
            raise
        counts.add(len(numbers))
    print(counts)
