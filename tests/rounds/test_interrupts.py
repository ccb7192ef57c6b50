"""Whatever a signal or a cancellation interrupts, the store serves on, and keeps what it acknowledged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.rounds.interrupts import KINDS
from tests.rounds.running import ENGINES, SMALL_POOLS, broken, run

FIRST, STEP = "2", "3"
"""Every third point; `make torture` tries them all."""


@pytest.fixture
def url(engine: str, disk_path: Path) -> str:
    return ENGINES[engine](disk_path).url + SMALL_POOLS[engine]


def ended(tried: dict[str, Any]) -> None:
    for kind, reached in tried.items():
        print(f"{kind}: {reached['points']} points, {len(reached['broken'])} broke the store")
    assert not broken(tried), broken(tried)
    assert all(reached["reached_end"] and reached["points"] for reached in tried.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_survives_an_interrupt_at_any_point(url: str):
    ended(run("interrupts", url, *KINDS, "--first", FIRST, "--step", STEP, seconds=100))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_survives_signals_at_random_moments(url: str):
    ended(run("signals", url, "--count", "300", "--seed", "13", seconds=60))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_survives_a_cancellation_at_any_await(url: str):
    ended(run("cancels", url, *KINDS, seconds=60))
