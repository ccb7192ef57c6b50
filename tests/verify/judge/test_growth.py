"""A session twice as long takes about twice the work, forgets and broken ones included."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

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


def messages(count: int, *, again: int = 1) -> list[str]:
    return [f"m{n}" for n in range(count) for _ in range(again)]


def written(count: int) -> Iterator[Op]:
    """One message after the other, each acknowledged before the next began."""
    return (append(n, 10 * n, 10 * n + 5, f"m{n}") for n in range(count))


def turns(count: int, *answer: str, forgets: bool = False) -> Iterator[Op]:
    """Each message is followed by a read that gives this answer, and perhaps by a forget."""
    for n in range(count):
        at = 20 * n
        yield append(3 * n, at, at + 5, f"m{n}")
        yield read(3 * n + 1, at + 6, at + 7, *(one.format(n, n - 1) for one in answer), limit=2)
        if forgets:
            yield forget(3 * n + 2, at + 8, at + 10)


BROKEN: dict[str, Callable[[int], list[Op]]] = {
    "all backwards": lambda n: [
        *written(n), read(n, 10 * n, 10 * n + 1, *reversed(messages(n)))
    ],
    "all twice": lambda n: [
        *written(n), read(n, 10 * n, 10 * n + 1, *messages(n, again=2))
    ],
    "all from nowhere": lambda n: [
        append(0, 1, 2, "a"), read(1, 3, 4, "a", *messages(n))
    ],
    "one more lost in each read": lambda n: list(turns(n, "m0")),
    "all came back": lambda n: [
        *turns(n, "m{0}", forgets=True), read(3 * n, 20 * n, 20 * n + 1, *messages(n))
    ],
    "each came back once": lambda n: list(turns(n, "m{1}", "m{0}", forgets=True)),
    "all torn": lambda n: [
        *(append(m, 10 * m, 10 * m + 5, f"m{m}", f"n{m}") for m in range(n)),
        read(n, 10 * n, 10 * n + 1, *messages(n)),
    ],
    "the oldest in each window": lambda n: [
        *turns(n, "m0", "m1"), read(3 * n, 20 * n, 20 * n + 1, *messages(n))
    ],
    "each lost before its forget": lambda n: list(turns(n, forgets=True)),
}  # fmt: skip


def work(ops: list[Op]) -> tuple[int, Verdict]:
    """The lines that a judgement runs: no clock, so that a busy machine changes nothing.

    Every turn of a comprehension is one more, even of one that is written on one line.
    """
    history = to_history(ops)
    lines = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        verdict = judge(history).verdict
    finally:
        sys.settrace(before)
    return lines, verdict


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(0, Verdict.KEPT), (1, Verdict.BROKEN), (3, Verdict.BROKEN)],
    ids=["sound", "partly forgotten", "not forgotten"],
)
def test_a_long_session_with_forgets_takes_linear_work(kept: int, expected: Verdict) -> None:
    once, verdict = work(list(conversations(100, kept=kept)))
    twice, _ = work(list(conversations(200, kept=kept)))

    assert verdict is expected
    assert twice < 2.5 * once


@pytest.mark.parametrize("why", BROKEN)
def test_a_session_twice_as_broken_takes_twice_the_work(why: str) -> None:
    once, verdict = work(BROKEN[why](200))
    twice, _ = work(BROKEN[why](400))

    assert verdict is Verdict.BROKEN
    assert twice < 2.3 * once
