"""A session twice as long takes about twice the work, forgets and broken ones included."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from holdfast.verify.judge import Verdict, judge
from tests.verify.judge.oracle import Op
from tests.verify.judge.random_histories import to_history
from tests.verify.judge.writing import append, forget, read


def conversations(count: int, *, kept: int) -> Iterator[Op]:
    """One after the other in one session, each read and forgotten; a forget leaves so many."""
    for n in range(count):
        at, number = 100 * n, 10 * n
        ids = [f"m{n}.{i}" for i in range(3)]
        left = [f"m{n - 1}.{i}" for i in range(3 - kept, 3)] if n else []
        yield from (append(number + i, at + 4 * i, at + 4 * i + 2, ids[i]) for i in range(3))
        yield read(number + 3, at + 20, at + 21, *left, *ids)
        yield read(number + 4, at + 22, at + 23, ids[-1], limit=1)
        yield forget(number + 5, at + 30, at + 31)


def work(count: int, *, kept: int) -> tuple[int, Verdict]:
    """The calls that a judgement takes: no clock, so that a busy machine changes nothing."""
    history = to_history(list(conversations(count, kept=kept)))
    calls = 0

    def count_call(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        verdict = judge(history).verdict
    finally:
        sys.setprofile(before)
    return calls, verdict


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(0, Verdict.KEPT), (1, Verdict.BROKEN)],
    ids=["sound", "partly forgotten"],
)
def test_a_long_session_with_forgets_takes_linear_work(kept: int, expected: Verdict) -> None:
    once, verdict = work(100, kept=kept)
    twice, _ = work(200, kept=kept)

    assert verdict is expected
    assert twice < 2.5 * once
