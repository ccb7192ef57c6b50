"""Random rounds on one open store, on every engine, through both APIs: nothing lost, nothing stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rounds.running import APIS, ENGINES, run

SEED = 13
TIME_S = 5.0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", ENGINES)
def test_rounds(engine: str, api: str, disk_path: Path):
    harness = ENGINES[engine](disk_path)
    reached = run("campaign", harness.url, api, "--seed", str(SEED), seconds=TIME_S)
    print(f"{engine} {api}: {reached['rounds']} rounds, {reached['stuck']} waits past the bound")
    print(reached["outcomes"])
    assert not reached["finding"], (
        f"{engine} {api}, round {reached['rounds']}: {reached['finding']}"
    )
    assert reached["rounds"]
