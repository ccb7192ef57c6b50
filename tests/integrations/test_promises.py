"""Through each framework's adapter our store keeps what the framework's own stores break (FIELD)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.verify.adapters import llama_index_store
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.judge import Verdict
from holdfast.verify.spec import kind_of
from holdfast.verify.suite import TESTS
from tests.verify.check.checking import run, tell

LLAMA_INDEX = (
    "test_no_reader_sees_part_of_a_batch",
    "test_a_batch_is_whole_or_absent_after_sigkill_of_its_writer",
    "test_of_simultaneous_tries_with_one_key_exactly_one_adds",
    "test_a_read_during_writes_is_one_cut",
    "test_a_damaged_record_is_named_and_hides_nothing_else",
)
"""Not the whole suite: LlamaIndex has no message whose content is a list of OpenAI's parts."""


@pytest.mark.parametrize("name", LLAMA_INDEX)
def test_a_promise_is_kept_through_llama_index(name: str, sqlite_engine: SqliteEngine):
    TESTS[name][1](llama_index_store.holdfast(sqlite_engine))


def test_what_langchains_redis_history_tears_ours_keeps_whole():
    # The other half: test_a_turn_is_torn_by_concurrent_writers_in_langchains_redis_history.
    asked = ("atomic", "exactly-once")
    name = "langchain:holdfast-redis"
    result = run(name, None, seed=1, faults=("none",), promises=asked, time_s=20)
    kept = [promise for promise in asked if result.promises[promise].verdict is Verdict.KEPT]
    assert kept == list(asked), tell(result)
    assert result.counts["acknowledged"] > 50


def test_our_store_through_a_framework_is_a_target_on_every_engine():
    assert kind_of("langchain:holdfast", None) == "sqlite"
    assert kind_of("openai-agents:holdfast-redis", None) == "redis"
    assert kind_of("llama-index:holdfast-postgres", None) == "postgres"
    with pytest.raises(UsageError, match="holdfast-postgres"):
        kind_of("llama-index:holdfast-chroma", None)


@pytest.mark.parametrize(
    ("module", "theirs", "extra"),
    [
        ("adk", "google", "adk"),
        ("agent_framework", "agent_framework", "agent-framework"),
        ("langchain", "langchain_core", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("llama_index", "llama_index", "llama-index"),
        ("llama_index_memory", "llama_index", "llama-index"),
        ("openai_compaction", "agents", "openai-agents"),
        ("langgraph", "langgraph", "langgraph"),
        ("langgraph_store", "langgraph", "langgraph"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_framework_that_is_missing_is_named_with_the_command(
    tmp_path: Path, module: str, theirs: str, extra: str
):
    (tmp_path / f"{theirs}.py").write_text("raise ImportError('it is not here')")
    done = subprocess.run(
        [sys.executable, "-c", f"import holdfast.integrations.{module}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (
        f"ImportError: it is not here. To have it: pip install 'holdfast[{extra}]'" in done.stderr
    )
