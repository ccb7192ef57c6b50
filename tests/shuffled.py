"""Any order of the tests, by a seed: `make flakes` runs them so, and a finding can be repeated.

The files are shuffled, and the tests of each file: what a file shares is set up once, as always.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict

import pytest

SEED = "HOLDFAST_TEST_ORDER"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if seed := os.environ.get(SEED):
        chance = random.Random(seed)
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            files[item.nodeid.split("::")[0]].append(item)
        order = sorted(files)
        chance.shuffle(order)
        for file in order:
            chance.shuffle(files[file])
        items[:] = [item for file in order for item in files[file]]
