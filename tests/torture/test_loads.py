"""100,000 exports from somebody who hates you, loaded into real engines beside what belongs to others.

They go on where the last run stopped (`counts`). Each is made from its number alone, so a finding is
repeated by the number that it names.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Durability
from tests.contract.harness import AnyStore, Opener
from tests.contract.spoiling import mutations
from tests.contract.test_loading_fuzz import Attack
from tests.rounds.running import APIS, ENGINES
from tests.torture.counts import Counts

LOADS = 100_000
CHUNK_LOADS = 500
"""Into one set of data; then an empty one, so that no engine fills up."""
LOOK_LOADS = 20
SEED = 17


class InMemory(Opener):
    """What is attacked is what a load lets in, not the disk: four fifths of a load waited for its sync."""

    def __call__(self, **settings: Any) -> AnyStore:
        return super().__call__(require=Durability.MEMORY, **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="holdfast-loads-") as name:
        yield Path(name)


@pytest.mark.timeout(0)
@pytest.mark.filterwarnings("ignore::holdfast.StorageWarning")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_hundred_thousand_hostile_loads(engine: str, folder: Path, time_s: float):
    counts, end_s = Counts(f"loads-{engine}", LOADS // len(ENGINES) + 1), time.monotonic() + time_s
    while counts.left and time.monotonic() < end_s:
        place = folder / str(counts.done)
        place.mkdir()
        _chunk(engine, place, counts, end_s)
        shutil.rmtree(place)
    print(counts)


def _chunk(engine: str, folder: Path, counts: Counts, end_s: float) -> None:
    """Some loads that do no harm; counted at each look at what belongs to others."""
    first = number = counts.done
    opener = InMemory(ENGINES[engine](folder), APIS[first // CHUNK_LOADS % len(APIS)])
    try:
        attack = Attack(opener)
        for number in itertools.count(first):
            if number - first >= CHUNK_LOADS or time.monotonic() > end_s:
                break
            prefix = f"{number}/{number}/"  # twice: no changed character makes it another one's
            attack.load(prefix, mutations(random.Random(f"{SEED} {number}")))
            if (number + 1) % LOOK_LOADS == 0:
                attack.check()
                counts.add(number + 1 - counts.done)
        attack.check()
        attack.check_writable()
        counts.add(number - counts.done)
    except Exception:
        counts.add(failures=1)
        print(f"load {number} of {engine}")
        raise
    finally:
        opener.close()
