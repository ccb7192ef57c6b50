"""A campaign that is cut off goes on from its counts, whatever cut it off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.torture.counts import Counts, page

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal
from tests.torture.counts import Counts
counts = Counts("odd", 10)
while counts.left:
    counts.add(1, acks=3)
    if counts.done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_campaign_goes_on_where_a_kill_stopped_it(tmp_path: Path, monkeypatch):
    environment = {**os.environ, "HOLDFAST_TORTURE_COUNTS": str(tmp_path / "counts")}
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, env=environment, timeout=60)
    assert killed.returncode == -9
    monkeypatch.setattr("tests.torture.counts.FOLDER", tmp_path / "counts")
    counts = Counts("odd", 10)
    assert (counts.done, counts.left, counts.failures, counts.more) == (4, 6, 0, {"acks": 12})
    counts.add(failures=1)
    assert (Counts("odd", 10).done, Counts("odd", 10).failures) == (4, 1)
    assert str(Counts("odd", 3)) == "odd: 4 of 3, 1 failed, 12 acks"
    assert Counts("odd", 3).left == 0
    assert Counts("other", 1).left == 1
    assert "| odd | 4 | 10 | 1 | 12 acks |" in page()
