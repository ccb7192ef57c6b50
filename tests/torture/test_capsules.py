"""A thousand capsules from somebody who hates you, and as many with an engine of their own.

They go on where the last run stopped (`counts`). Each is made from its number alone.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.torture.counts import Counts
from tests.verify.capsule.test_hostile import CAPSULES, FILES, attack

COUNT = 1000
SERVERS = tuple(sorted({file.name for file in CAPSULES.iterdir()} - set(FILES)))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("names", [FILES, SERVERS], ids=["files", "servers"])
def test_a_thousand_hostile_capsules(
    names: tuple[str, ...], tmp_path: Path, time_s: float, request: pytest.FixtureRequest
):
    counts = Counts(f"capsules-{request.node.callspec.id}", COUNT)
    end_s = time.monotonic() + time_s
    while counts.left and time.monotonic() < end_s:
        (tmp_path / "capsule").mkdir()
        try:
            attack(tmp_path / "capsule", counts.done, names)
        except Exception:
            counts.add(failures=1)
            print(f"capsule {counts.done} of {request.node.callspec.id}")
            raise
        shutil.rmtree(tmp_path / "capsule")
        counts.add(1)
    print(counts)
