"""The judge's word, in full: simulated stores with one defect, and 100,000 broken histories."""

from __future__ import annotations

import itertools
import json
import os

import pytest

from holdfast.verify.judge import judge
from tests.verify.judge.sentences import untrue
from tests.verify.judge.test_roots import SIMULATORS, accusations, meddled

BROKEN = 100_000
SESSIONS_EACH = 100

pytestmark = [
    pytest.mark.skipif(
        "HOLDFAST_TORTURE_MINUTES" not in os.environ, reason="long: run it with make torture"
    ),
    pytest.mark.timeout(1800),
]


def test_no_sentence_is_false_on_a_hundred_thousand_broken_histories() -> None:
    found = 0
    for number in itertools.count():
        if found >= BROKEN:
            break
        history = meddled(f"torture-{number}")
        anomalies = judge(history).anomalies
        found += bool(anomalies)
        for anomaly in anomalies:
            assert untrue(history, anomaly) == [], number


@pytest.mark.parametrize("how", SIMULATORS)
def test_simulated_stores_are_accused_of_their_own_defect(how: str) -> None:
    seeds = (f"torture-{number}" for number in range(SESSIONS_EACH))
    tally, false = accusations(SIMULATORS[how](seeds))

    print(json.dumps(tally))
    assert false == []
    assert tally["one"] >= 0.98 * tally["broken"]
    assert tally["right"] >= 0.95 * tally["broken"]
