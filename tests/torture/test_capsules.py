"""A thousand capsules from somebody who hates you."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.verify.capsule.test_hostile import attack


def test_a_thousand_hostile_capsules(tmp_path: Path):
    for seed in range(1000):
        (tmp_path / "capsule").mkdir()
        attack(tmp_path / "capsule", seed)
        shutil.rmtree(tmp_path / "capsule")
