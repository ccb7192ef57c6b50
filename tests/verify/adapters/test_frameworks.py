"""The stores of frameworks, by name: opened as their users open them, and held to the promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.verify.adapters.frameworks import FRAMEWORKS, HOLDFAST_ENGINES, imported
from holdfast.verify.judge import Verdict
from holdfast.verify.spec import kind_of
from tests.verify.check.checking import run, tell

HOLDFAST = Path(sys.executable).with_name("holdfast")


def test_a_framework_and_an_engine_make_a_name():
    assert kind_of("openai-agents:sqlite", None) == "sqlite"
    assert kind_of("langchain:postgres", "postgres") == "postgres"
    assert kind_of("chroma:client", None) == "sqlite"
    assert kind_of("chroma:server", None) == "chroma"
    with pytest.raises(UsageError, match="there are: sqlite, redis"):
        kind_of("openai-agents:postgres", None)
    with pytest.raises(UsageError, match="leave --engine out"):
        kind_of("langchain:redis", "postgres")


@pytest.mark.parametrize(("framework", "about"), FRAMEWORKS.items())
def test_every_engine_that_is_named_has_its_function(framework: str, about: tuple[str, ...]):
    module = imported(FRAMEWORKS[framework].module, framework)
    names = {
        "holdfast" if kind in HOLDFAST_ENGINES else kind for kind in FRAMEWORKS[framework].engines
    }
    assert all(callable(getattr(module, name)) for name in names), about


def test_a_framework_that_is_not_installed_is_named_with_the_command(tmp_path: Path):
    (tmp_path / "llama_index.py").write_text("raise ImportError('it is not here')")
    done = subprocess.run(
        [str(HOLDFAST), "check", "llama-index:redis"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2, done.stdout
    assert "pip install llama-index-storage-chat-store-redis" in done.stderr


def test_a_turn_is_torn_by_concurrent_writers_in_langchains_redis_history():
    # It pushes the messages of one call one by one (FIELD: langchain-community Redis history).
    result = run("langchain:redis", None, seed=1, faults=("none",), promises=("atomic",), time_s=10)
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)
    assert "torn" in {anomaly["name"] for anomaly in result.promises["atomic"].anomalies}


def test_openai_agents_sqlite_session_keeps_order_and_names_what_it_does_not_claim():
    asked = ("ordered", "isolated", "exactly-once")
    result = run("openai-agents:sqlite", None, seed=1, faults=("none",), promises=asked, time_s=15)
    assert result.promises["ordered"].verdict is Verdict.KEPT, tell(result)
    assert result.promises["isolated"].verdict is Verdict.KEPT, tell(result)
    assert result.promises["exactly-once"].verdict is Verdict.NOT_CLAIMED


def test_chroma_keeps_sessions_apart_and_finds_them_and_its_order_is_the_applications_clock():
    asked = ("isolated", "recallable", "exactly-once")
    result = run("chroma:server", None, seed=1, faults=("none",), promises=asked, time_s=10)
    assert result.promises["isolated"].verdict is Verdict.KEPT, tell(result)
    assert result.promises["recallable"].verdict is Verdict.KEPT, tell(result)
    assert result.promises["exactly-once"].verdict is Verdict.NOT_CLAIMED
    assert result.environment["settings"]["order"].startswith("by the time of the application")
