"""One test file, unchanged, runs on engines from every provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from holdfast.verify.engines import start_engine
from tests.plugins import WITHOUT_OTHERS

TESTS = """
import pytest, redis

@pytest.mark.parametrize("number", range(4))
def test_it_is_mine_alone(redis_engine, number):
    prefix = getattr(redis_engine, "namespace", "mine")
    with redis.Redis.from_url(redis_engine.url) as client:
        assert client.incr(prefix + ":n") == 1
"""


def run_pytest(directory: Path, *options: str) -> str:
    (directory / "test_any.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT_OTHERS, *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_parallel_workers_share_one_server_by_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start_engine("redis", provider="local") as server:
        monkeypatch.setenv("HOLDFAST_REDIS_URL", server.url)
        assert "4 passed" in run_pytest(tmp_path, "-n", "2", "--holdfast-provider", "url")
        with redis.Redis.from_url(server.url) as client:
            assert client.dbsize() == 0
            assert client.info("stats")["total_commands_processed"] > 8


@pytest.mark.docker
def test_the_provider_is_chosen_by_flag_or_by_variable(
    tmp_path: Path, daemon: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert daemon
    assert "4 passed" in run_pytest(tmp_path, "--holdfast-provider", "docker")
    monkeypatch.setenv("HOLDFAST_PROVIDER", "docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(AssertionError, match="no Docker daemon answers"):
        run_pytest(tmp_path)
