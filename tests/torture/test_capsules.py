"""A thousand capsules from somebody who hates you, and as many with an engine of their own.

They go on where the last run stopped: `.cache/capsules/` knows. Each is made from its number alone.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.rounds.running import ROOT
from tests.verify.capsule.test_hostile import CAPSULES, FILES, attack

COUNT = 1000
SERVERS = tuple(sorted({file.name for file in CAPSULES.iterdir()} - set(FILES)))
FOLDER = ROOT / ".cache" / "capsules"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("names", [FILES, SERVERS], ids=["files", "servers"])
def test_a_thousand_hostile_capsules(
    names: tuple[str, ...], tmp_path: Path, time_s: float, request: pytest.FixtureRequest
):
    file = FOLDER / f"{request.node.callspec.id}.json"
    first = json.loads(file.read_text("utf-8")) if file.exists() else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + time_s
    done = first
    for done in range(first, COUNT):
        if time.monotonic() > end_s:
            break
        print(f"capsule {done} of {request.node.callspec.id}")  # shown where it fails
        (tmp_path / "capsule").mkdir()
        attack(tmp_path / "capsule", done, names)
        shutil.rmtree(tmp_path / "capsule")
        file.write_text(json.dumps(done + 1), "utf-8")
