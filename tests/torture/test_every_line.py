"""Each of our stores, crashed at every line that an append, a rewrite or a forget passes."""

from __future__ import annotations

import random

import pytest

from holdfast.verify.judge import Verdict
from tests.verify.check.checking import run, tell

PROMISES = ("durable", "atomic", "exactly-once", "forgotten", "loud")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("store", ["sqlite", "redis", "postgres"])
def test_no_line_tears_anything(store: str, chance: random.Random):
    seed = chance.randrange(2**32)
    result = run(store, None, faults=("crash-at-line",), promises=PROMISES, seed=seed)
    assert result.verdict is Verdict.KEPT, tell(result)
    print(tell(result))
