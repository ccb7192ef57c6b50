"""Files of a database deleted, replaced and cut at random moments: nothing is lost in silence."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sqlite.harm import FILES, HARMS, one_round

ROUNDS = 5


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", FILES, ids=("db", "wal", "shm"))
def test_no_ack_is_lost_in_silence(disk_path: Path, file: str, harm: str):
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for number in range(ROUNDS):
        done = one_round(disk_path / f"{number}", file, harm, chance)
        assert done.lost_in_silence() == [], f"seed {seed}, round {number}: {done.lines[-40:]}"
