"""A private Docker daemon for the tests and pages that need one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "docker"
DAEMON_TIMEOUT_S = 300


@pytest.fixture(scope="session")
def docker_environment() -> Iterator[dict[str, str]]:
    """The variables that lead to a daemon with images of our own; skipped aloud without one."""
    me = ["--for", str(os.getpid())]
    done = subprocess.run(
        [SCRIPT, "up", *me], capture_output=True, text=True, timeout=DAEMON_TIMEOUT_S, check=False
    )
    if done.returncode == 3:
        pytest.skip(f"NOT TESTED, no Docker daemon may run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    pairs = [word for word in done.stdout.split() if "=" in word]
    yield dict(pair.split("=", 1) for pair in pairs)
    subprocess.run([SCRIPT, "down", *me], timeout=DAEMON_TIMEOUT_S, check=True)


@pytest.fixture
def daemon(docker_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """This test talks to our own daemon."""
    for name, value in docker_environment.items():
        monkeypatch.setenv(name, value)
    return docker_environment
