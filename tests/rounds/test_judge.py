"""No check counts until something broken has failed it: each rule, on records made for it."""

from __future__ import annotations

import pytest

from tests.rounds.judge import DONE, NOT_DONE, UNKNOWN, Record, Rows, problems
from tests.rounds.plan import Operation, plan


def ack(began: int, ended: int, first: int, *texts: str, **more: object) -> Record:
    operation = Operation("append", "s", texts, more.get("key"), more.get("expect"))  # type: ignore[arg-type]
    last, repeated = first + len(texts) - 1, bool(more.get("repeated"))
    return Record(operation, began, ended, DONE, first, last, repeated)


def failed(outcome: str, *texts: str) -> Record:
    return Record(Operation("append", "s", texts), 0, 1, outcome)


def erases(kind: str, began: int, ended: int, first: int = 0, *texts: str) -> Record:
    last = first + len(texts) - 1
    return Record(Operation(kind, "s", texts), began, ended, DONE, first, last)


def read(rows: Rows, began: int = 90) -> Record:
    return Record(Operation("history", "s"), began, began + 1, DONE, rows=rows)


A, B = ack(0, 1, 1, "a"), ack(2, 3, 2, "b", "c")
ALL = [(1, "a"), (2, "b"), (3, "c")]
GOOD = {
    "appends": [A, B, read(ALL)],
    "unknown, and there": [A, failed(UNKNOWN, "x"), read([(1, "a"), (2, "x")])],
    "unknown, and not there": [A, failed(UNKNOWN, "x"), read([(1, "a")])],
    "forgotten": [A, erases("forget", 2, 3), read([])],
    "forgotten meanwhile": [A, erases("forget", 0, 5), read([(1, "a")])],
    "rewritten": [A, erases("rewrite", 2, 3, 2, "r"), read([(2, "r")])],
    "a key": [ack(0, 3, 1, "k", key="k"), ack(1, 2, 1, "k", key="k", repeated=True), read([(1, "k")])],
}  # fmt: skip
BAD = {
    "missing": ("missing", [A, B, read([(1, "a")])]),
    "missing in an earlier read": ("missing", [A, read([], began=2), read([(1, "a")])]),
    "doubled": ("doubled", [A, read([(1, "a"), (2, "a")])]),
    "other number": ("the history 2", [A, read([(2, "a")])]),
    "in part": ("in part", [A, B, read([(1, "a"), (2, "b")])]),
    "torn apart": ("in part", [B, A, read([(2, "b"), (3, "a"), (4, "c")])]),
    "failed, and there": ("what failed", [A, failed(NOT_DONE, "x"), read([(1, "a"), (2, "x")])]),
    "out of thin air": ("nobody wrote", [A, read([(1, "a"), (2, "z")])]),
    "not ascending": ("ascending", [A, B, read([ALL[1], ALL[2], ALL[0]])]),
    "order": ("stands after", [ack(0, 1, 2, "a"), ack(2, 3, 1, "b"), read([(1, "b"), (2, "a")])]),
    "number twice": ("given twice", [A, ack(0, 3, 1, "d"), read([(1, "a")])]),
    "key twice": ("written twice", [ack(0, 1, 1, "k", key="k"), ack(0, 1, 1, "k", key="k")]),
    "key, two acks": ("two acks", [ack(0, 1, 1, "k", key="k"), ack(0, 2, 2, "k", key="k")]),
    "expect": ("expected the end", [A, ack(2, 3, 4, "b", expect=2), read([(1, "a"), (4, "b")])]),
    "not forgotten": ("still there", [A, erases("forget", 2, 3), read([(1, "a")])]),
    "half rewritten": (
        "left before",
        [A, erases("rewrite", 2, 3, 2, "r"), read([(1, "a"), (2, "r")])],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_is_called_right(name: str):
    assert problems(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_found(name: str):
    words, records = BAD[name]
    assert any(words in problem for problem in problems(records)), problems(records)


def test_a_round_is_the_same_whenever_it_is_planned():
    assert [plan(7, number) for number in range(50)] == [plan(7, number) for number in range(50)]
    assert plan(7, 1) != plan(8, 1)


def test_rounds_are_of_every_kind():
    plans = [plan(7, number) for number in range(2000)]
    calls = [
        (worker, call) for one in plans for worker in one.workers for call in worker.operations
    ]
    assert {call.kind for _, call in calls} == {"append", "history", "rewrite", "forget", "close"}
    for chosen in (
        [one for one in plans if one.closes],
        [one for one in plans if one.elsewhere],
        [one for one in plans if one.jitter],
        [one for one in plans if any(worker.store for worker in one.workers)],
        [worker for worker, _ in calls if worker.cancel_turns is not None],
        [worker for worker, _ in calls if worker.cancel_us is not None],
        [worker for worker, _ in calls if worker.call_timeout_s is not None],
        [call for _, call in calls if call.key],
        [call for _, call in calls if call.expect],
        [call for _, call in calls if len(call.texts) > 1],
    ):
        assert chosen
