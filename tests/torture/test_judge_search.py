"""The full figure: 100,000 small random histories, the judge beside an exhaustive search."""

from __future__ import annotations

import os

import pytest

from tests.verify.judge.test_against_search import KINDS, compare

EACH = 25_000

pytestmark = [
    pytest.mark.skipif(
        "HOLDFAST_TORTURE_MINUTES" not in os.environ, reason="long: run it with make torture"
    ),
    pytest.mark.timeout(1800),
]


@KINDS
def test_of_100_000_histories_none_is_misjudged(forgets: bool, limits: bool) -> None:
    tally = compare(EACH, forgets=forgets, limits=limits, seed=1)

    print(dict(tally))
    assert tally["false alarm"] == 0
    assert tally["screen disagrees"] == 0
    missed_max = 0 if not forgets and not limits else tally["broken"] // 1000
    assert tally["missed"] <= missed_max
