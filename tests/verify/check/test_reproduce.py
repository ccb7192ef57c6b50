"""From a result to a test: it fails on the broken store, and passes on the mended one."""

from __future__ import annotations

import ast
import copy
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from holdfast import cli
from holdfast.errors import UsageError, VerifyError
from holdfast.verify import reproduce, shrink
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult, PromiseResult
from holdfast.verify.scenarios.load import Concurrency
from tests.plugins import WITHOUT_OTHERS
from tests.warm import WarmCommand

STORE = """
import json, sqlite3
from holdfast.verify import Claims, NotClaimed, Target

class Memory:
    def __init__(self, path):
        self.db = sqlite3.connect(path, timeout=20, isolation_level=None)
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY AUTOINCREMENT, s, r)")

    def append(self, session, messages):
        self.db.execute("BEGIN IMMEDIATE")
        rows = [(session, json.dumps(m)) for m in messages]
        self.db.executemany("INSERT INTO t (s, r) VALUES (?, ?)", rows)
        self.db.execute("COMMIT")

    def history(self, session, limit=None):
        rows = self.db.execute("SELECT r FROM t WHERE s MATCHES ? ORDER BY n", (session,)).fetchall()
        found = [json.loads(r) for (r,) in rows]
        return found if limit is None else found[len(found) - min(limit, len(found)):]

    def forget(self, session):
        self.db.execute("DELETE FROM t WHERE s = ?", (session,))

def target(engine):
    why = NotClaimed("not here")
    return Target(
        open=lambda: Memory(engine.data_dir / "m.db"), engine=engine,
        claims=Claims(exactly_once=why, expiring=why, recallable=why),
    )
"""
BROKEN, MENDED = (STORE.replace("MATCHES", operator) for operator in ("LIKE", "="))
"""An id may hold a `%`: then a session shows others' messages."""


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(folder: Path, warm_command: WarmCommand) -> Run:
    return lambda *words: warm_command.run(words, cwd=folder, env=dict(os.environ), given=None)


@pytest.fixture
def folder(disk_path: Path) -> Path:
    (disk_path / "memory.py").write_text(BROKEN)
    return disk_path


def _pytest(folder: Path) -> int:
    words = [sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, "-p", "no:cacheprovider"]
    return subprocess.run(
        [*words, "test_ids.py"], cwd=folder, capture_output=True, timeout=110
    ).returncode


@pytest.mark.timeout(600)  # six checks one after the other, each in a process of its own
def test_a_broken_promise_becomes_a_test(folder: Path, run: Run):
    checked = run(
        "check", "memory.py:target", "--engine", "sqlite", "--faults", "none", "--time", "4",
        "--promises", "isolated,ordered", "--seed", "5", "--json", "result.json",
    )  # fmt: skip
    assert checked.returncode == 1, checked.stdout + checked.stderr
    made = run("reproduce", "result.json", "--out", "test_ids.py")
    assert made.returncode == 0, made.stderr
    text = (folder / "test_ids.py").read_text()
    assert "promises=('isolated',)" in text
    assert "scenario='odd-ids'" in text
    assert _pytest(folder) == 1
    (folder / "memory.py").write_text(MENDED)
    assert _pytest(folder) == 0


def test_after_a_finding_a_smaller_plan_is_shown_and_the_verdict_stays(folder: Path, run: Run):
    words = (
        "check", "memory.py:target", "--engine", "sqlite", "--faults", "none", "--time", "6",
        "--promises", "ordered,isolated", "--seed", "5", "--json", "result.json",
    )  # fmt: skip
    shrunk = run(*words, "--shrink", "60", "--report", "r.html")
    found = json.loads((folder / "result.json").read_text())
    assert (shrunk.returncode, found["verdict"]) == (1, "broken"), shrunk.stderr
    assert "--shrink" not in found["repeat"]
    less = found["smallest"]
    assert less["promise"] == "isolated"
    assert "--promises isolated --scenario odd-ids " in less["repeat"]
    assert "A appends" in less["story"]
    assert f"isolated: the smallest plan that shows it: {less['repeat']}" in shrunk.stdout
    assert less["repeat"] in (folder / "r.html").read_text()
    plain = run(*words, "--shrink", "0")
    found = json.loads((folder / "result.json").read_text())
    assert (plain.returncode, found["verdict"], "smallest" in found) == (1, "broken", False)


def _result(**root: object) -> CheckResult:
    root = {"name": "lost", "scenario": "kill-clients", "fault": "kill", **root}
    broken = PromiseResult(Verdict.BROKEN, "x", {}, (root,))
    return CheckResult("t", 1, Verdict.BROKEN, {"durable": broken}, {}, {}, {})


def test_what_goes_wrong_while_shrinking_changes_no_verdict(monkeypatch: pytest.MonkeyPatch):
    result, tried = _result(), list[CheckOptions]()
    kept = PromiseResult(Verdict.KEPT, "x")

    def otherwise(plan: CheckOptions, _: object, **_more: bool) -> CheckResult:
        tried.append(plan)
        if errors:
            raise errors.pop()
        return replace(result, promises={"durable": kept})

    monkeypatch.setattr(shrink, "check", otherwise)
    asked = CheckOptions(target="t")
    errors: list[BaseException] = [VerifyError("engine"), KeyboardInterrupt(), OSError("disk")]
    while errors:
        assert reproduce.smallest(asked, result, 20) is None
    tried.clear()
    assert reproduce.smallest(asked, result, 3) is None  # no plan fits
    assert reproduce.smallest(asked, result, 0) is None
    assert tried == []
    assert reproduce.smallest(asked, result, 20) is None
    # Every small plan, then the scenario as it is; what would take longer than 20 s is left out.
    assert {plan.scenario for plan in tried} == {"kill-clients"}
    assert [plan.time_s for plan in tried if not plan.operations] == [2.0, 5.0]


def test_what_breaks_it_is_tried_with_one_client_operation_and_message_less(
    monkeypatch: pytest.MonkeyPatch,
):
    """Of a store that breaks whenever two clients append, that is what is left."""
    result, kept = _result(faults=[], nearby=[{}]), PromiseResult(Verdict.KEPT, "x")

    def breaks(plan: CheckOptions, _: object, **_more: bool) -> CheckResult:
        is_so = plan.clients == 2 and any(word.startswith("append") for word in plan.operations)
        return result if is_so else replace(result, promises={"durable": kept})

    monkeypatch.setattr(shrink, "check", breaks)
    monkeypatch.setattr(shrink, "_APPENDS", ((4, "append:2,read"), (2, "read,append:3,forget")))
    found = result.to_json()["promises"]["durable"]
    least = shrink.least(CheckOptions(target="t"), "durable", found, 60)
    assert least is not None
    plan = least[0]
    assert (plan.scenario, plan.clients, plan.operations) == ("concurrency", 2, ("append:1",))


def test_a_lost_update_is_told_with_two_appends_and_a_read(
    warm_command: WarmCommand, disk_path: Path
):
    words = (
        "check", "tests.verify.check.stores:lost_update", "--engine", "sqlite", "--faults", "none",
        "--time", "6", "--seed", "5", "--shrink", "60", "--json", str(disk_path / "r.json"),
    )  # fmt: skip
    done = warm_command.run(words, cwd=Path.cwd(), env=dict(os.environ), given=None)
    less = json.loads((disk_path / "r.json").read_text())["smallest"]
    told = re.sub("[A-Z]", "X", re.sub("[abc]0", "x0", less["story"]))
    assert told == "X appends x0 · meanwhile X appends x0 · X reads [x0] without x0"
    assert "--scenario concurrency --clients 2 --operations append:1 " in less["repeat"]
    assert less["story"] in done.stdout


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"repeat": "holdfast check"}',
        json.dumps({"repeat": "holdfast check sqlite", "promises": {}}),
        json.dumps({"repeat": "rm -rf x", "promises": {"durable": {"verdict": "kept"}}}),
    ],
)
def test_a_file_that_has_nothing_to_reproduce_is_a_mistake_of_the_user(
    folder: Path, run: Run, content: str
):
    (folder / "result.json").write_text(content)
    done = run("reproduce", "result.json", "--out", "test_ids.py")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (folder / "test_ids.py").exists()


def test_ctrl_c_ends_the_search_for_a_smaller_plan_and_a_reproduced_test(
    monkeypatch: pytest.MonkeyPatch,
):
    """A check takes it for the end of its scenarios; then the next plan, or the next test, began."""
    begun = []

    def stopped(*_: object) -> None:
        begun.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Concurrency, "run", stopped)
    plan = CheckOptions(target="sqlite", promises=("durable",), scenario="concurrency", time_s=2)
    found = _result(scenario="concurrency", faults=[]).to_json()["promises"]["durable"]
    assert shrink.least(plan, "durable", found, 60) is None
    assert len(begun) == 1
    with pytest.raises(KeyboardInterrupt):
        reproduce.hold(plan, "durable")


def test_a_plan_that_does_not_end_is_ended_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shrink, "ROUGHLY", 0.0)
    monkeypatch.setattr(shrink, "check", lambda *_, **_more: time.sleep(30))
    found = _result().to_json()["promises"]["durable"]
    began = time.monotonic()
    assert shrink.least(CheckOptions(target="t"), "durable", found, 0.5) is None
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("time_s", [float("inf"), float("nan"), 1e300, 0, -1])
def test_a_time_that_no_check_can_take_is_a_mistake_of_the_user(time_s: float):
    with pytest.raises(UsageError, match="a check takes"):
        CheckOptions(time_s=time_s)


@pytest.mark.parametrize("words", [("read",), ("append:٣",), ("forget", "read:2"), ("append:0",)])
def test_operations_that_show_nothing_or_are_none_are_a_mistake_of_the_user(
    words: tuple[str, ...],
):
    with pytest.raises(UsageError, match="operations"):
        CheckOptions(operations=words)


@pytest.mark.parametrize("word", ["forget", "retry"])
def test_an_operation_that_the_store_does_not_claim_is_a_mistake_of_the_user(word: str):
    """It was left out of the plan, or failed in every session, and nobody was told."""
    not_claimed = ("forgotten", "exactly-once")
    plan = CheckOptions(
        target="sqlite", scenario="concurrency", operations=("append:1", word), time_s=2,
        not_claimed=not_claimed,
    )  # fmt: skip
    with pytest.raises(UsageError, match=f"--operations {word}: the store does not claim"):
        check(plan, shrink.Quiet())


def test_lines_of_a_stores_error_stay_comments():
    lines = 'it said\nimport os; os.abort()\r\n"""\x1b[31m'
    broken = PromiseResult(Verdict.BROKEN, lines, {}, ())
    result = CheckResult("t", 1, Verdict.BROKEN, {"durable": broken}, {}, {}, {})
    text = reproduce.as_test(reproduce.Reproduced("durable", CheckOptions(), result))
    assert "# import os; os.abort()" in text
    statements = ast.parse(text).body
    assert [type(each) for each in statements][:2] == [ast.ImportFrom, ast.ImportFrom]
    assert len(statements) == 4


_SOUND = {
    "repeat": "holdfast check sqlite --time 2",
    "promises": {
        "durable": {
            "verdict": "broken", "evidence": {}, "because": "x",
            "anomalies": [{"name": "lost", "scenario": "kill-clients", "fault": "kill"}],
        }
    },
    "smallest": {"promise": "durable", "repeat": "holdfast check sqlite --time 2"},
}  # fmt: skip
_ODD: tuple[Any, ...] = (
    None, 0, 1e400, "", [], {}, ["x"], {"a": 1}, "'", "holdfast check --help", "x" * 1_000_000,
    "holdfast check sqlite --nonsense", "holdfast check sqlite; touch x", "holdfast check $(touch x)",
)  # fmt: skip


def _changed(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value) * isinstance(value, list)):
        yield from _changed(value[key], (*path, key))


def test_a_result_is_data_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Each value of it made another: a mistake of the user, or a plan that is tried. Nothing is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shrink, "check", lambda *_, **_more: _result())
    file = tmp_path / "result.json"
    ends = Counter[str]()
    for path, odd in itertools.product(_changed(_SOUND), _ODD):
        value: Any = copy.deepcopy([_SOUND])
        at, places = value, [0, *path]
        for key in places[:-1]:
            at = at[key]
        at[places[-1]] = odd
        file.write_text(json.dumps(value[0]))
        try:
            reproduce.as_test(reproduce.reproduce(file, None, 60, cli._check_options))
        except (UsageError, click.UsageError) as error:
            ends[type(error).__name__] += 1
        else:
            ends["made"] += 1
    assert ends["made"] > 20
    assert ends["UsageError"] > 20
    assert capfd.readouterr().out == ""
    assert list(tmp_path.iterdir()) == [file]
