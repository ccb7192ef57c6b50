"""Starts a campaign in a process of its own, and reads what it reached."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.harness import Harness, SqliteHarness
from tests.contract.harness_postgres import PostgresHarness
from tests.contract.harness_redis import RedisHarness

ROOT = Path(__file__).parents[2]
ENGINES: dict[str, Callable[[Path], Harness]] = {
    "sqlite": SqliteHarness,
    "redis": RedisHarness,
    "postgres": PostgresHarness,
}
APIS = ("async", "sync")
SMALL_POOLS = {"sqlite": "", "redis": "?connections_max=8", "postgres": "&pool_max=8"}
MORE_S = 150.0
"""What a process may take beyond its time: the start, and one finding with its bounds."""


def run(module: str, url: str, *arguments: str, seconds: float) -> dict[str, Any]:
    """The last line that `python -m tests.rounds.MODULE` prints; its stacks go to our output."""
    words = ["-m", f"tests.rounds.{module}", url, *arguments, "--seconds", f"{seconds:g}"]
    process = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds + MORE_S,
    )
    print(process.stderr[-20_000:])
    lines = process.stdout.splitlines()
    assert lines, f"{module} said nothing and ended with {process.returncode}"
    reached: dict[str, Any] = json.loads(lines[-1])
    return reached


def broken(tried: dict[str, Any]) -> str:
    """What interrupts or cancellations have broken, a line each."""
    return "\n".join(
        f"{kind} at {at} ({place}): {trouble}"
        for kind, reached in tried.items()
        for at, place, trouble in reached["broken"]
    )
