"""Our store on Redis: an ack is held to what is required, whatever level it names."""

from __future__ import annotations

import pytest

from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from tests.verify.check.checking import run, tell

KILL = {"faults": ("kill",), "promises": ("durable",), "seed": 3, "time_s": 8}


def test_a_policy_that_keeps_nothing_since_the_snapshot_is_shown_losing():
    result = run("redis", None, config="rdb-only", **KILL)
    assert result.exit_code == 1, tell(result)
    assert result.counts["lost"] > 0
    assert result.environment["level"] == "MEMORY"


def test_a_level_below_what_is_required_is_never_called_kept():
    result = run("redis", None, config="aof-everysec", **KILL)
    assert result.promises["durable"].verdict is not Verdict.KEPT, tell(result)


def test_a_policy_that_syncs_before_it_answers_is_kept():
    result = run("redis", None, config="aof-always", require="PROCESS", **KILL)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    assert result.counts["lost"] == 0


def test_whoever_requires_nothing_is_not_told_of_a_loss():
    result = run("redis", None, config="rdb-only", require="MEMORY", **KILL)
    assert result.promises["durable"].verdict is not Verdict.BROKEN, tell(result)
    assert "MEMORY" in CheckOptions(target="redis", require="MEMORY").command


@pytest.mark.parametrize("require", ["", "disk", "NOWHERE"])
def test_a_level_that_there_is_not_is_refused(require: str):
    with pytest.raises(ValueError, match="require"):
        CheckOptions(require=require)
