"""Whole checks of sound stores that `make test` has no time for."""

from __future__ import annotations

import pytest

from holdfast.verify.judge import Verdict
from tests.verify.check.checking import run, tell


@pytest.mark.parametrize("seed", range(5))
def test_a_sound_stranger_on_sqlite_raises_no_alarm(seed: int):
    result = run("sound", seed=seed, time_s=20)
    assert result.verdict is Verdict.KEPT, tell(result)
