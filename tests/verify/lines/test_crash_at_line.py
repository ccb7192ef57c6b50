"""`holdfast check --faults crash-at-line`: every line of a store, and those that tear a turn."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult, Finding, combine
from holdfast.verify.scenarios import CrashAtLine, EngineAtLine, PowerAtLine, crash_plans
from tests.verify.check.checking import Notes, tell
from tests.verify.lines import stores

STORES = "tests.verify.lines.stores"


@pytest.fixture(autouse=True)
def only_these_scenarios(monkeypatch: pytest.MonkeyPatch):
    """The others have tests of their own, and take their time."""
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (EngineAtLine(), CrashAtLine()))


def run(
    name: str,
    *promises: str,
    engine: str = "sqlite",
    faults: tuple[str, ...] = ("crash-at-line",),
    time_s: float = 10,
    require: str = "PROCESS",
) -> CheckResult:
    options = CheckOptions(
        target=(name if ":" in name else f"{STORES}:{name}") if engine == "sqlite" else engine,
        engine=engine if engine == "sqlite" else None,
        promises=promises,
        faults=faults,
        seed=3,
        time_s=time_s,
        require=require,
    )
    return check(options, Notes())


def lines_between(function: Any, first: str, last: str) -> set[int]:
    """The numbers of the lines from the one with `first` in it to the one with `last`."""
    texts, start = inspect.getsourcelines(function)
    [begin] = [n for n, text in enumerate(texts, start) if first in text]
    [end] = [n for n, text in enumerate(texts, start) if last in text]
    return set(range(begin, end + 1))


BETWEEN = lines_between(stores.TwoCommits.append, "the first line at which", "the last one")
"""The lines before which the question is committed and the answer is not."""


def guilty(result: CheckResult, promise: str = "atomic") -> set[int]:
    """The lines that the check names."""
    said = result.promises[promise].evidence["scenarios"]["crash-at-line"]["lines"]
    found = [re.match(r"stores\.py:(\d+)", line) for line in said]
    assert all(found), said
    return {int(match[1]) for match in found if match}


def keeps_all_but_loud(result: CheckResult) -> bool:
    """Nobody met an error, which a crash at a line does not provoke: of `loud` that is too little."""
    verdicts = {promise: one.verdict for promise, one in result.promises.items()}
    loud = result.promises["loud"].evidence["scenarios"]["crash-at-line"]["verdict"]
    others = dict.fromkeys(verdicts, Verdict.KEPT) | {"loud": Verdict.UNKNOWN}
    return loud == "kept" and verdicts == others


def test_a_turn_in_two_commits_is_caught_at_exactly_the_lines_between_them():
    result = run("two_commits", "atomic")
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)
    assert guilty(result) == BETWEEN
    because = result.promises["atomic"].because
    assert re.search(r"(\d+) of \1 crash points explored; \d+ tear a turn: stores\.py:", because)
    assert "`self.db.executemany(INSERT, rows)`" in because


def test_of_several_findings_the_one_that_names_lines_speaks():
    plain = Finding("atomic", Verdict.BROKEN, "torn: …", "concurrency")
    exact = Finding("atomic", Verdict.BROKEN, "memory.py:42", "crash-at-line", {"lines": ["…"]})
    assert combine(["atomic"], {}, [plain, exact])["atomic"].because == "memory.py:42"


def test_what_takes_no_fault_speaks_before_what_takes_a_crash_at_a_line():
    without = Finding("atomic", Verdict.BROKEN, "torn: …", "load", {}, ({"faults": []},))
    with_one = Finding("atomic", Verdict.BROKEN, "kill", "kill", {}, ({"faults": ["kill"]},))
    exact = Finding("atomic", Verdict.BROKEN, "memory.py:42", "crash-at-line", {"lines": ["…"]})
    said = combine(["atomic"], {}, [with_one, exact, without])["atomic"].because
    assert said == "torn: … (and 2 more)"


def test_the_thread_of_an_async_store_is_crashed_in_too():
    result = run("in_a_thread", "atomic")
    assert guilty(result) == BETWEEN


def test_a_sound_store_raises_no_alarm_and_every_crash_is_proven():
    result = run("one_commit", "atomic", "durable", "loud")
    assert keeps_all_but_loud(result), tell(result)
    evidence = result.promises["atomic"].evidence["scenarios"]["crash-at-line"]
    assert evidence["explored"] == evidence["points"] == result.faults["crash-at-line"].landed
    lines = lines_between(stores.OneCommit.append, "with self.db", "INSERT")
    assert evidence["points"] >= len(lines) + 2  # and those of forget


def test_a_forget_and_a_rewrite_in_two_steps_are_named():
    result = run("in_two_steps", "atomic")
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)
    [line] = lines_between(stores.InTwoSteps.forget, "half of a turn", "half of a turn")
    assert line in guilty(result), tell(result)
    rewrite = result.promises["atomic"].evidence["scenarios"]["crash-at-line"]["rewrites"]
    assert "`self.append(session, messages)  # here nothing is left`" in rewrite[0]


def test_a_store_that_does_not_come_back_after_a_crash_is_broken():
    result = run("locks", "loud")
    assert result.promises["loud"].verdict is Verdict.BROKEN, tell(result)
    assert "FileExistsError" in result.promises["loud"].because


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch):
    """Its fork would wait for ever for what the thread was to do: each is started instead."""
    monkeypatch.setattr("holdfast.verify.scenarios.crash_at_line.TRACES", 1)
    result = run("tests.verify.lines.with_a_thread:target", "durable")
    assert result.verdict is Verdict.KEPT, tell(result)
    [seen] = result.faults["crash-at-line"].seen
    assert "`WORKER.submit(super().append, session, messages).result()`" in seen


def test_where_no_line_is_seen_nothing_is_called_kept():
    result = run("somewhere_else", "atomic", "durable")
    assert result.exit_code == 3
    assert "no line of the store's own" in result.promises["atomic"].because
    result = run("somewhere_else", "durable", faults=("all",), time_s=2)
    assert "no line of the store's own" in str(result.faults["crash-at-line"].not_run)


def test_our_store_survives_a_crash_at_every_line_of_its_sqlite_part():
    result = run("our_own", "durable", "atomic", "exactly-once", "forgotten", "loud")
    assert keeps_all_but_loud(result), tell(result)
    evidence = result.promises["atomic"].evidence["scenarios"]["crash-at-line"]
    assert evidence["points"] > 100
    assert evidence["explored"] >= 0.9 * evidence["points"]


def test_among_all_faults_it_takes_a_share_of_the_time_and_says_how_far_it_came():
    result = run("our_own", "durable", faults=("all",), time_s=3)
    because = result.promises["durable"].because
    match = re.search(r"(\d+) of (\d+) crash points explored", because)
    assert match, because
    assert 0 < int(match[1]) < int(match[2])


@pytest.mark.parametrize("engine", ["redis", "postgres"])
def test_the_engine_dies_at_lines_of_our_store(engine: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (EngineAtLine(),))
    monkeypatch.setattr("holdfast.verify.scenarios.crash_at_line.POINTS_MAX", 3)
    result = run("", "durable", "atomic", "exactly-once", engine=engine)
    assert result.verdict is Verdict.KEPT, tell(result)
    seen = result.faults["crash-at-line"].seen
    assert sum(f"processes of {engine}" in each for each in seen) == 3, seen


@pytest.mark.usefixtures("can_cut")
@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_the_power_is_cut_at_lines_of_our_store(engine: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (PowerAtLine(),))
    monkeypatch.setattr("holdfast.verify.scenarios.crash_at_line.POINTS_MAX", 8)
    asked = ("durable", "atomic", "exactly-once")
    result = run("our_own", *asked, engine=engine, require="DISK")
    assert result.verdict is Verdict.KEPT, tell(result)
    seen = result.faults["crash-at-line"].seen
    assert sum("the disk (block) went away" in each for each in seen) == 8, seen


@pytest.mark.usefixtures("can_cut")
def test_a_power_cut_after_an_ack_that_was_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.verify.check.SCENARIOS", (PowerAtLine(),))
    monkeypatch.setattr("holdfast.verify.scenarios.crash_at_line.POINTS_MAX", 8)
    result = run("never_synced", "durable", require="DISK")
    assert result.promises["durable"].verdict is Verdict.BROKEN, tell(result)


ACKED = {"name": "lost", "because": "'a' was acknowledged (append 1) before read 2 began"}
SHOWN = {"name": "rollback", "because": "'b' was shown by read 1 before read 2 began"}


def test_acknowledged_is_said_of_crashes_only_where_it_holds_for_each() -> None:
    assert crash_plans.what_they_did("durable", [ACKED, ACKED]) == "lose what was acknowledged"
    assert crash_plans.what_they_did("durable", [SHOWN]) == "lose what was shown"
    both = crash_plans.what_they_did("durable", [ACKED, SHOWN])
    assert both == "lose what was acknowledged or shown"
    names = [{"name": "window", "because": ""}, {"name": "hole", "because": ""}]
    assert crash_plans.what_they_did("snapshot", names) == "break snapshot (hole, window)"
