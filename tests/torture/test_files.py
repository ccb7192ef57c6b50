"""Files of a SQLite database deleted, replaced and cut at random moments, 500 times each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sqlite.harm import FILES, HARMS, one_round

ROUNDS = 500


@pytest.mark.timeout(0)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", FILES, ids=("db", "wal", "shm"))
def test_no_ack_is_lost_in_silence(disk_path: Path, file: str, harm: str, chance: random.Random):
    acks = told = read = 0
    for number in range(ROUNDS):
        done = one_round(disk_path / f"{number}", file, harm, chance)
        assert done.lost_in_silence() == [], f"round {number}: {done.lines[-40:]} {done.reader}"
        acks += sum(kind == "ack" for kind, _ in done.lines)
        told += any(kind == "error" for kind, _ in done.lines)
        read += bool(done.reader)
    print(
        f"{file or 'db'} {harm}: {ROUNDS} rounds, {acks} acks; in {told} rounds the client was told, "
        f"in {read} the reader; lost in silence: 0"
    )
