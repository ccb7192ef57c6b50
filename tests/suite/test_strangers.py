"""The suite as a stranger meets it: one file in an empty directory, no conftest."""

from __future__ import annotations

import pytest

from tests.plugins import WITHOUT_OTHERS

pytest_plugins = ["pytester"]

HEAD = """
import json, sqlite3, pytest
from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.suite import *

class Memory:
    def __init__(self, path):
        self.db = sqlite3.connect(path, timeout=10)
        self.db.execute("CREATE TABLE IF NOT EXISTS turn (n INTEGER PRIMARY KEY, session, record)")

    def append(self, session, messages):
        rows = [(session, json.dumps(message)) for message in messages]
        with self.db:
            self.db.executemany("INSERT INTO turn (session, record) VALUES (?, ?)", rows)

    def history(self, session, limit=None):
        newest = "SELECT record FROM turn WHERE session = ? ORDER BY n DESC LIMIT ?"
        rows = self.db.execute(newest, (session, -1 if limit is None else limit)).fetchall()
        return [json.loads(record) for (record,) in reversed(rows)]

    def forget(self, session):
        with self.db:
            self.db.execute("DELETE FROM turn WHERE session = ?", (session,))

    def close(self):
        self.db.close()

class AsyncMemory(Memory):
    async def append(self, session, messages):
        Memory.append(self, session, messages)

    async def history(self, session, limit=None):
        return Memory.history(self, session, limit)

    async def forget(self, session):
        Memory.forget(self, session)

async def open_memory(path):
    return AsyncMemory(path)

CLAIMS = Claims(exactly_once=NotClaimed("no key"), expiring=NotClaimed("we keep everything"),
                recallable=NotClaimed("no search"))

@pytest.fixture
def target(sqlite_engine):
    return Target(open=lambda: OPEN(sqlite_engine.path), engine=sqlite_engine, claims=CLAIMS)
"""
DAMAGED = "test_a_damaged_record_is_named_and_hides_nothing_else"
KNOWN = f"""
{DAMAGED} = pytest.mark.xfail(strict=True, reason="a known hole")({DAMAGED})
"""
NEWEST = "test_the_newest_n_are_the_newest_n"


def run(
    pytester: pytest.Pytester, *parts: str, store: str = "Memory", options: tuple[str, ...] = ()
) -> pytest.RunResult:
    pytester.makepyfile("\n".join([HEAD, *parts, f"OPEN = {store}"]))
    plugins = ("-p", "no:cacheprovider", "-p", "no:xdist", *WITHOUT_OTHERS)
    return pytester.runpytest_subprocess("-W", "error", "-rsx", *plugins, *options, timeout=100)


@pytest.mark.parametrize("store", ["Memory", "open_memory"])
def test_a_careful_store_passes_and_what_it_does_not_claim_is_said(
    pytester: pytest.Pytester, store: str
):
    done = run(pytester, KNOWN, store=store)
    counts = done.parseoutcomes()
    assert counts.get("failed", 0) == counts.get("errors", 0) == 0
    assert counts["xfailed"] == 1
    assert counts["passed"] > 20
    done.stdout.fnmatch_lines_random(
        [
            "*exactly-once is not claimed: no key",
            "*expiring is not claimed: we keep everything",
            "*recallable is not claimed: no search",
            f"XFAIL *{DAMAGED} - a known hole",
        ]
    )


def test_the_failure_is_the_evidence(pytester: pytest.Pytester):
    broken = """
class Wrong(Memory):
    def history(self, session, limit=None):
        return Memory.history(self, session)[:limit]
"""
    done = run(pytester, broken, store="Wrong", options=("-k", NEWEST))
    assert done.parseoutcomes()["failed"] == 1
    done.stdout.fnmatch_lines(["snapshot: the newest 1 of 30 came back as *'m.0'*"])


def test_a_mark_stays_in_its_own_module(pytester: pytest.Pytester):
    pytester.makepyfile(test_other=HEAD + "\nOPEN = Memory")
    done = run(pytester, KNOWN, options=("-k", DAMAGED))
    assert done.parseoutcomes() == {
        "failed": 1,
        "xfailed": 1,
        "deselected": done.parseoutcomes()["deselected"],
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (f"def {NEWEST}(target):\n    pass", "overridden"),
        (f"del {NEWEST}", "removed"),
        (f"{NEWEST} = pytest.mark.skip(reason='later')({NEWEST})", "skipped"),
        (f"{NEWEST} = pytest.mark.skipif(True, reason='later')({NEWEST})", "skipped"),
        (f"{NEWEST} = pytest.mark.xfail(reason='flaky')({NEWEST})", "xfail without strict=True"),
        (f"{NEWEST} = pytest.mark.xfail(strict=True)({NEWEST})", "xfail without strict=True"),
    ],
)
def test_a_test_of_the_suite_cannot_be_silenced(pytester: pytest.Pytester, change: str, words: str):
    pytester.makepyfile(f"{HEAD}\n{change}")
    done = pytester.runpytest_subprocess("--collect-only", "-p", "no:xdist", *WITHOUT_OTHERS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    said = done.stdout.str() + done.stderr.str()
    assert NEWEST in said
    assert words in said


def test_what_is_no_store_is_named(pytester: pytest.Pytester):
    done = run(pytester, store="lambda path: object()", options=("-k", NEWEST))
    done.stdout.fnmatch_lines(["*object, which has no append, history, forget*"])


def test_a_history_that_is_no_list_is_named(pytester: pytest.Pytester):
    wrong = "class Wrong(Memory):\n    def history(self, session, limit=None):\n        pass"
    options = ("-k", "test_content_comes_back_exactly")
    done = run(pytester, wrong, store="Wrong", options=options)
    done.stdout.fnmatch_lines(["*history() returned NoneType; a list of messages is needed*"])
