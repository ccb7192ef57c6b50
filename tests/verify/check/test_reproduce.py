"""From a result to a test: it fails on the broken store, and passes on the mended one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import VerifyError
from holdfast.verify import reproduce
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult, PromiseResult
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
    assert "faults=('none',)" in text
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
    assert "--promises isolated " in less["repeat"]  # by a busy machine no shorter one is found
    assert f"isolated: the smallest plan that shows it: {less['repeat']}" in shrunk.stdout
    assert less["repeat"] in (folder / "r.html").read_text()
    plain = run(*words, "--shrink", "0")
    found = json.loads((folder / "result.json").read_text())
    assert (plain.returncode, found["verdict"], "smallest" in found) == (1, "broken", False)


def test_what_goes_wrong_while_shrinking_changes_no_verdict(monkeypatch: pytest.MonkeyPatch):
    broken = PromiseResult(Verdict.BROKEN, "x", {}, ({"name": "lost", "fault": "kill"},))
    result = CheckResult("t", 1, Verdict.BROKEN, {"durable": broken}, {}, {}, {})
    asked = CheckOptions(target="t")
    tried: list[float] = []

    def otherwise(plan: CheckOptions, _: object) -> CheckResult:
        """Broken again, in another way."""
        tried.append(plan.time_s)
        if errors:
            raise errors.pop()
        return replace(result, promises={"durable": replace(broken, anomalies=())})

    monkeypatch.setattr(reproduce, "check", otherwise)
    errors: list[BaseException] = [VerifyError("engine"), KeyboardInterrupt(), OSError("disk")]
    while errors:
        assert reproduce.smallest(asked, result, 20) is None
    tried.clear()
    assert reproduce.smallest(asked, result, 3) is None  # no plan fits
    assert reproduce.smallest(asked, result, 0) is None
    assert tried == []
    assert reproduce.smallest(asked, result, 20) is None
    assert tried == [2.0, 5.0]


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
