"""The pages about the promises say what the suite and the twins are: no test, no twin is made up."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from holdfast.verify.promises import PROMISES
from holdfast.verify.suite import TESTS
from tests.suite import test_faults
from tests.twins.test_twins import CASES, ELSEWHERE, TWINS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "promises"
ROW = re.compile(r"^\| `(test_\w+)` \| (.*) \| (.*) \|$", re.MULTILINE)
TWIN = re.compile(r"(?:^|<br>)`(\w+)` \(")
CAUGHT = re.compile(
    r"^\$ pytest -rP tests/twins/test_twins.py -k (.+)\n((?:.+\n)+?)```", re.MULTILINE
)
PARTS = ("bug that people ship", "tests and their twins", "Caught", "How Holdfast keeps it")


def words(promise: str) -> str:
    return (FOLDER / f"{promise}.md").read_text("utf-8")


def sentence(doc: str | None) -> str:
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def test_every_promise_has_its_page_and_its_line_in_the_table():
    pages = {file.stem for file in FOLDER.glob("*.md")} - {"index"}
    assert pages == set(PROMISES)
    table = (FOLDER / "index.md").read_text("utf-8")
    assert re.findall(r"^\| \[`([\w-]+)`\]\(([\w-]+)\.md\)", table, re.MULTILINE) == [
        (promise, promise) for promise in PROMISES
    ]


@pytest.mark.parametrize("promise", PROMISES)
def test_a_page_has_all_of_its_parts(promise: str):
    page = words(promise)
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert headings[0] == promise
    assert [part for part in (*PARTS, "Not promised") if part not in " ".join(headings)] == []


@pytest.mark.parametrize("promise", PROMISES)
def test_a_page_names_every_test_of_its_promise_and_the_twins_that_fail_it(promise: str):
    told = {
        name: (done, set(TWIN.findall(twins))) for name, done, twins in ROW.findall(words(promise))
    }
    held = {
        name: (
            sentence(body.__doc__),
            {twin.__name__ for twin in TWINS if name in twin.caught_by} or {"Turns"},
        )
        for name, (of, body) in TESTS.items()
        if of == promise
    }
    assert told == held


@pytest.mark.parametrize("promise", PROMISES)
def test_a_page_tells_of_each_twin_what_the_twin_tells(promise: str):
    page = words(promise)
    for twin in TWINS:
        if twin.promise == promise:
            assert f"`{twin.__name__}` (" in page
            assert sentence(twin.__doc__) in page, twin


@pytest.mark.parametrize("promise", PROMISES)
def test_a_page_names_only_files_that_there_are(promise: str):
    named = re.findall(r"`(tests/[\w/.]+)`", words(promise))
    assert f"tests/contract/test_{promise.replace('-', '_')}.py" in named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_what_is_proven_elsewhere_is_proven_there():
    source = inspect.getsource(test_faults)
    assert all(f".{name}(target)" in source for name in ELSEWHERE)
    assert hasattr(test_faults, "Turns")


@pytest.mark.parametrize("promise", PROMISES)
def test_what_a_page_shows_being_caught_is_a_run_that_there_is(promise: str):
    cases = [str(case.id) for case in CASES]
    [(chosen, shown)] = CAUGHT.findall(words(promise))
    for word in chosen.strip('"').split(" or "):
        assert any(word in case and case.startswith(f"{promise}-") for case in cases), word
    lines = [line for line in shown.splitlines() if not line.startswith("…")]
    assert lines
    assert all(line.startswith(f"{promise}: ") for line in lines)
