"""Campaigns that take as long as you give them: `make torture MINUTES=30`. Not part of `make test`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.torture import counts

PAGE = Path(__file__).parents[2] / "docs" / "results" / "torture.md"
MINUTES = os.environ.get("HOLDFAST_TORTURE_MINUTES")

collect_ignore_glob = [] if MINUTES else ["test_*.py"]


def pytest_terminal_summary() -> None:
    """The page of results is as new as the last run."""
    if MINUTES and any(counts.FOLDER.glob("*.json")):
        PAGE.write_text(counts.page(), "utf-8")


@pytest.fixture
def time_s() -> float:
    return float(MINUTES or 0) * 60


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("HOLDFAST_TORTURE_SEED", random.randrange(2**32)))
    print(f"HOLDFAST_TORTURE_SEED={seed}")
    return random.Random(seed)
