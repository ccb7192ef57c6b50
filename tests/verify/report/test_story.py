"""A finding as one line: who did what, in which order, and what struck between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.verify.judge import Verdict
from holdfast.verify.report import ci
from holdfast.verify.result import CheckResult, PromiseResult
from holdfast.verify.story import named, story, story_of


def _append(
    process: str, began: int, ended: int, *messages: str, status: str = "ok"
) -> dict[str, Any]:
    return {
        "f": "append", "process": process, "status": status, "messages": list(messages),
        "invoked_ns": began, "completed_ns": ended,
    }  # fmt: skip


def _read(process: str, began: int, *messages: str, limit: int | None = None) -> dict[str, Any]:
    return {
        "f": "history", "process": process, "status": "ok", "messages": list(messages),
        "invoked_ns": began, "completed_ns": began + 5, "limit": limit,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operations", "faults", "expected"),
    [
        (
            [_append("c1", 10, 20, "x.0", "x.1"), _read("c2", 50)],
            [{"name": "power", "time_ns": 30}],
            "A appends a0 a1 · power cut · B reads []",
        ),
        (  # the read began before the append ended
            [_append("c1", 10, 90, "x.0", "x.1"), _read("c2", 50, "y", "z", "x.0", limit=3)],
            [],
            "A appends a0 a1 · meanwhile B reads the newest 3: [… a0]",
        ),
        (  # given in any order, told by time; two appends of one client
            [
                _read("c2", 60, "x.0"),
                _append("c1", 30, 40, "x.1"),
                _append("c1", 10, 20, "x.0"),
            ],
            [],
            "A appends a0 · A appends a1 · B reads [a0]",
        ),
        (
            [_append("c1", 10, 20, "x.0", status="info"), _append("c1", 30, 40, "x.0"),
             _read("c1", 50, "x.0", "x.0")],
            [{"name": "lost-ack", "time_ns": 15}],
            "A appends a0 (no answer) · the reply is lost · A retries a0 · A reads [a0 a0]",
        ),
        (
            [{"f": "forget", "process": "c1", "status": "ok", "invoked_ns": 1, "completed_ns": 2},
             _read("c2", 5, "old")],
            [],
            "A forgets · B reads […]",
        ),
        (  # the same again is counted, and what ended after the last call is no part of it
            [_append("c1", 10, 20, "x.0"), _read("c2", 50)],
            [{"name": "power", "time_ns": 30}, {"name": "power", "time_ns": 31},
             {"name": "power over", "time_ns": 40}, {"name": "kill", "time_ns": 45},
             {"name": "kill over", "time_ns": 52}],
            "A appends a0 · power cut (2 times) · power is back · SIGKILL · B reads []",
        ),
        ([], [], ""),
    ],
)  # fmt: skip
def test_a_story_tells_what_happened(
    operations: list[dict[str, Any]], faults: list[dict[str, Any]], expected: str
):
    assert story({"operations": operations, "faults": faults}) == expected


def test_a_fault_in_the_middle_of_an_operation_is_told_as_that():
    operations = [_append("c1", 10, 20, "x"), _read("c1", 30)]
    told = story({"operations": operations, "faults": [{"name": "network", "time_ns": 33}]})
    assert told == "A appends a0 · A reads [] · meanwhile network cut"


def test_what_a_read_lacks_is_named():
    operations = [_append("c1", 10, 20, "x.0", "x.1"), _read("c2", 50, "y", "x.1", limit=2)]
    told = story({"operations": operations, "message": "x.0"})
    assert told == "A appends a0 a1 · B reads the newest 2: [… a1] without a0"


def test_what_was_never_answered_says_what_struck_it():
    operations = [_append("c1", 10, 20, "x.0", status="info"), _read("c2", 50)]
    told = story({"operations": operations, "scenario": "crash-at-line"})
    assert told == "A appends a0, SIGKILL in the middle · B reads []"


def test_the_shortest_story_with_its_faults_is_the_example():
    """Only the first findings of a kind are told with what struck between."""
    short = [_append("c1", 10, 20, "x"), _read("c2", 50)]
    fault = {"name": "power", "time_ns": 30}
    long = {"operations": [*short, _read("c2", 60)], "faults": [fault]}
    one = {"anomalies": [{"operations": short}, long], "evidence": {}}
    assert story_of(one) == "A appends a0 · power cut · B reads [] · B reads []"


def test_odd_content_is_told_by_what_came_back():
    example = {"what": "16 megabytes", "sent": "x" * 10_000 + "end", "seen": "x" * 10_000}
    one = {"anomalies": [], "evidence": {"scenarios": {"odd-content": {"examples": [example]}}}}
    rest = "x" * 24
    assert story_of(one) == f"16 megabytes: A appends …{rest}end · A reads …{rest}"


def test_a_finding_in_the_names_of_its_story():
    operations = [
        {"op": 1000, **_append("conc.c1", 10, 20, "conc.c1.0")},
        {"op": 3000, **_read("conc.c3", 50, "other")},
    ]
    because = "'conc.c1.0' was acknowledged (append 1000) before read 3000 began; read 77 did not"
    short = named({"operations": operations, "message": "conc.c1.0", "because": because})
    assert short["because"] == (
        "a0 was acknowledged (A's append) before B's read began; read 77 did not"
    )
    assert [one["process"] for one in short["operations"]] == ["A", "B"]
    assert [one["messages"] for one in short["operations"]] == [["a0"], ["other"]]
    assert short["message"] == "a0"


def test_ci_and_notebooks_show_the_story_of_the_smallest_plan():
    operations = [_append("c1", 10, 20, "x"), _append("c1", 25, 30, "y"), _read("c2", 50)]
    broken = PromiseResult(
        Verdict.BROKEN, "gone", {}, ({"name": "lost", "operations": operations},)
    )
    less = {"promise": "durable", "story": "A appends a0 · B reads [] <b>", "repeat": ""}
    result = CheckResult(
        "t", 1, Verdict.BROKEN, {"durable": broken}, {}, {}, {"took_s": 1}, smallest=less
    )
    found = result.to_json()
    assert "A appends a0 · B reads" in "\n".join(ci.markdown(found))
    assert "A appends a0 · B reads [] &lt;b&gt;" in ci.junit(found)
    assert "A appends a0 · B reads [] &lt;b&gt;" in result._repr_html_()
    other = replace(result, smallest=less | {"promise": "loud"})
    assert "A appends a0 · A appends a1 · B reads []" in ci.junit(other.to_json())
