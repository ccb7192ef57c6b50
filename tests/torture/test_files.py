"""Files of a SQLite database deleted, replaced and cut at random moments, 500 times each.

They go on where the last run stopped (`counts`).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sqlite.harm import FILES, HARMS, one_round
from tests.torture.counts import Counts

ROUNDS = 500


@pytest.mark.timeout(0)
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", FILES, ids=("db", "wal", "shm"))
def test_no_ack_is_lost_in_silence(disk_path: Path, file: str, harm: str, chance: random.Random):
    counts = Counts(f"files-{file.strip('-') or 'db'}-{harm}", ROUNDS)
    while counts.left:
        done = one_round(disk_path / f"{counts.done}", file, harm, chance)
        lost = len(done.lost_in_silence())
        counts.add(
            int(not lost),
            failures=int(bool(lost)),
            acks=sum(kind == "ack" for kind, _ in done.lines),
            client_told=int(any(kind == "error" for kind, _ in done.lines)),
            reader_told=int(bool(done.reader)),
        )
        assert not lost, f"round {counts.done}: {done.lines[-40:]} {done.reader}"
    print(counts)
