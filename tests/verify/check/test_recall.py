"""The check asks for promise 12 and for the index half of promise 10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.verify.adapters import plain
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import Engine
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult
from holdfast.verify.scenarios.recall import Recall
from holdfast.verify.scenarios.summary_crashes import SummaryAtLine
from holdfast.verify.workload import memories
from tests.verify.check import recalling
from tests.verify.check.checking import Notes, tell
from tests.verify.check.scene import play


def run(target: str, engine: str | None = "sqlite", **asked: Any) -> CheckResult:
    name = f"tests.verify.check.recalling:{target}" if engine else target
    usual: dict[str, Any] = {"seed": 7, "faults": ("kill",), "promises": ("recallable",)}
    return check(CheckOptions(target=name, engine=engine, **(usual | asked)), Notes())


def test_our_store_is_found_by_meaning_whatever_happens_to_its_index():
    result = run("sqlite", None, promises=("recallable", "forgotten"), time_s=10)
    assert result.verdict is Verdict.KEPT, tell(result)
    because = result.promises["recallable"].because
    for part in ("by other words", "loss of an index of 8", "another embedding model"):
        assert part in because
    assert "after SIGKILL inside recall()" in because
    assert "every message is told by one summary" in because
    left = "no vector, memory, summary of it is left"
    assert left in result.promises["forgotten"].because
    assert result.faults["index-loss"].seen[0].startswith("8 vectors")
    assert result.faults["kill"].in_flight


def test_so_it_is_with_an_index_in_chroma(disk_path: Path):
    result = run(f"chroma:///{disk_path}", None)
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["index-loss"].landed == 1


def test_an_index_that_is_written_beside_the_log_is_caught():
    result = run("dual_write")
    found = result.promises["recallable"].evidence["scenarios"]
    assert found["recall-kill"]["verdict"] == "broken", tell(result)


@pytest.mark.parametrize(
    ("name", "promise", "words"),
    [
        ("retry_indexes", "forgotten", "after a late retry"),
        ("mixed_models", "recallable", "with another embedding model"),
        ("words_only", "recallable", "is not among the 2 best"),
        ("summarizes_all", "recallable", "messages 1 to 4 are told by two summaries"),
        ("summary_stays", "forgotten", "a summary of what was forgotten is there"),
        ("memory_comes_back", "forgotten", "after a late retry"),
    ],
)
def test_the_questions_catch_an_index_that_drifts(
    sqlite_engine: Engine, name: str, promise: str, words: str
):
    target = getattr(recalling, name)(sqlite_engine)
    with plain.Client(target) as client:
        found = list(memories.recall(client, target, 7))
    broken = [f for f in found if f["promise"] == promise and f["verdict"] == "broken"]
    assert words in broken[0]["because"], found


def test_a_crash_at_a_line_of_a_summary_neither_loses_nor_doubles_ours(sqlite_engine: Engine):
    found = play(SummaryAtLine(), "sqlite", "sqlite", scale=0.2, engine=sqlite_engine)
    one = found.of("recallable")
    assert one.verdict is Verdict.KEPT, one.because
    assert "every message is told by one summary" in one.because
    assert found.tallies["crash-at-line"].landed == one.evidence["explored"] > 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("summary_twice", "are told by two summaries, after summarize() was done again"),
        ("summary_never", "of 4 messages those after 2 are told by no summary"),
    ],
)
def test_a_summary_and_its_mark_in_two_steps_are_caught_with_the_line(
    sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch, name: str, words: str
):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # with threads it could not fork
    target = f"tests.verify.check.recalling:{name}"
    found = play(SummaryAtLine(), target, "sqlite", named=("crash-at-line",), engine=sqlite_engine)
    one = found.of("recallable")
    assert one.verdict is Verdict.BROKEN, one.because
    assert words in one.because
    assert "tests/twins/" in one.because


def test_questions_that_broke_off_are_not_called_kept(sqlite_engine: Engine):
    target = "tests.verify.check.recalling:dies_in_a_summary"
    one = play(Recall(), target, "sqlite", engine=sqlite_engine).of("recallable")
    assert one.verdict is Verdict.UNKNOWN
    assert "a client ended by itself (exit 9)" in one.because


def test_a_sound_user_store_raises_no_alarm():
    result = run("sound")
    assert result.verdict is Verdict.KEPT, tell(result)


def test_what_could_not_be_tried_is_said_beside_the_verdict():
    one = run("without_index", faults=("none",)).promises["recallable"]
    assert one.verdict is Verdict.KEPT
    assert "Not put to the test: a lost index (Target(index=" in one.because
    assert "another embedding model (Target(index=" in one.because


def test_whoever_claims_it_and_cannot_be_asked_is_told_what_to_say():
    one = run("claims_only", faults=("none",)).promises["recallable"]
    assert one.verdict is Verdict.UNKNOWN
    assert "recallable=NotClaimed(why)" in one.because
