"""The full figure: 100,000 small random histories, the judge beside an exhaustive search.

They go on where the last run stopped (`counts`).
"""

from __future__ import annotations

import os

import pytest

from tests.torture.counts import Counts
from tests.verify.judge.test_against_search import KINDS, compare

EACH = 25_000
CHUNK = 1_000

pytestmark = [
    pytest.mark.skipif(
        "HOLDFAST_TORTURE_MINUTES" not in os.environ, reason="long: run it with make torture"
    ),
    pytest.mark.timeout(1800),
]


@KINDS
def test_of_100_000_histories_none_is_misjudged(forgets: bool, limits: bool) -> None:
    counts = Counts(f"judge-search-{forgets:d}{limits:d}", EACH)
    while counts.left:
        tally = compare(CHUNK, forgets=forgets, limits=limits, seed=1 + counts.done)
        wrong = tally["false alarm"] + tally["screen disagrees"]
        counts.add(0 if wrong else CHUNK, failures=wrong, **tally)
        assert wrong == 0, counts
    print(counts)
    missed_max = 0 if not forgets and not limits else counts.more["broken"] // 1000
    assert counts.more["missed"] <= missed_max
