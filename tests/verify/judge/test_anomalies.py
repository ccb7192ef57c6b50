"""Each anomaly from its definition, and beside it the nearest history that is not one.

The expected names and witnesses are reasoned from the definitions; the words beside each case
say how. Times are small whole numbers: `append(1, 3, 5, "a")` began at 3 and ended at 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from holdfast.verify.history import Header
from holdfast.verify.judge import ANOMALIES, Verdict, judge
from holdfast.verify.judge.recheck import confirmed
from tests.verify.judge.oracle import Op
from tests.verify.judge.random_histories import to_history
from tests.verify.judge.writing import (
    S,
    append,
    forget,
    lost_reply,
    named,
    read,
    roots,
    suspected,
)

PLAIN = Header("hand")
TTL = Header("hand", ttl_s=10.0)
ONE_SECOND_OFF = Header("hand", ttl_s=10.0, clock_error_s=1.0)


@dataclass(frozen=True)
class Case:
    why: str
    ops: tuple[Op, ...]
    expect: frozenset[tuple[str, str]]
    echoes: frozenset[tuple[str, str]]
    witness: frozenset[int]
    twin_why: str
    twin: tuple[Op, ...]
    header: Header = PLAIN


def case(
    why: str,
    *ops: Op,
    expect: set[tuple[str, str]],
    witness: set[int],
    echoes: set[tuple[str, str]] = frozenset(),  # type: ignore[assignment]
    but: str,
    twin: tuple[Op, ...],
    header: Header = PLAIN,
) -> Case:
    return Case(
        why, ops, frozenset(expect), frozenset(echoes), frozenset(witness), but, twin, header
    )


A, B, C = append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c")

CASES = [
    case(
        "an acknowledged message is in no read",
        A, read(9, 3, 4),
        expect={("lost", "a")}, witness={1, 9},
        but="an append without a reply may never have happened",
        twin=(lost_reply(1, 1, "a"), append(2, 1, 2, "b"), read(9, 3, 4, "b")),
    ),
    case(
        "an append without a reply, once seen, is known from then",
        lost_reply(1, 1, "a"), read(8, 2, 3, "a"), read(9, 4, 5),
        expect={("lost", "a")}, witness={8, 9},
        but="it may appear late",
        twin=(lost_reply(1, 1, "a"), append(2, 1, 9, "b"), read(8, 2, 3), read(9, 4, 5, "a", "b")),
    ),
    case(
        "the newest message is gone and the older one is still there",
        A, B, read(9, 5, 6, "a"),
        expect={("rollback", "b")}, witness={2, 9},
        but="the append had not ended when the read began",
        twin=(A, append(2, 3, 6, "b"), read(9, 5, 7, "a")),
    ),
    case(
        "the middle one is gone",
        A, B, C, read(9, 7, 8, "a", "c"),
        expect={("lost", "b")}, witness={2, 9},
        but="the middle one failed, so it was never there",
        twin=(A, append(2, 3, 4, "b", status="fail"), C, read(9, 7, 8, "a", "c")),
    ),
    case(
        "a forget that takes one of two and leaves the other was applied in part",
        A, append(2, 1, 9, "b"), read(7, 3, 4, "a", "b"), forget(6, 5, 9), read(8, 5, 9, "b"),
        expect={("resurrected", "b")}, witness={6, 7, 8},
        but="a message that came after the forget stands alone",
        twin=(A, append(2, 1, 9, "b"), read(7, 3, 4, "a"), forget(6, 5, 9), read(8, 5, 9, "b")),
    ),
    case(
        "a later message is shown, the earlier one is not, and then is again",
        A, B, C, read(8, 7, 8, "a", "c"), read(9, 9, 10, "a", "b", "c"),
        expect={("hole", "b")}, witness={2, 3, 8, 9},
        but="it began so late that the first of the reads need not show it",
        twin=(A, append(2, 3, 9, "b"), append(3, 5, 9, "c"), read(8, 7, 8, "a"), read(9, 9, 10, "a", "b", "c")),
    ),
    case(
        "half a batch",
        append(1, 1, 2, "a", "b"), read(9, 3, 4, "a"),
        expect={("torn", "b")}, witness={1, 9},
        but="the window cuts the batch",
        twin=(append(1, 1, 2, "a", "b"), read(9, 3, 4, "b", limit=1)),
    ),
    case(
        "a batch with another message inside it",
        append(1, 1, 9, "a", "b"), append(2, 1, 9, "c"), read(9, 3, 4, "a", "c", "b"),
        expect={("torn", "a")}, witness={1, 2, 9},
        but="side by side",
        twin=(append(1, 1, 9, "a", "b"), append(2, 1, 9, "c"), read(9, 3, 4, "a", "b", "c")),
    ),
    case(
        "a read after the ack does not see it, a later one does",
        A, read(8, 3, 4), read(9, 5, 6, "a"),
        expect={("stale", "a")}, witness={1, 8, 9},
        but="the append was still running",
        twin=(append(1, 1, 4, "a"), read(8, 3, 4), read(9, 5, 6, "a")),
    ),
    case(
        "b began after a was acknowledged and stands before it",
        A, B, read(9, 5, 6, "b", "a"),
        expect={("reorder", "a")}, witness={1, 2, 9},
        but="they ran at the same time",
        twin=(A, append(2, 1, 4, "b"), read(9, 5, 6, "b", "a")),
    ),
    case(
        "two reads disagree",
        append(1, 1, 9, "a"), append(2, 1, 9, "b"), read(8, 2, 3, "a", "b"), read(9, 2, 3, "b", "a"),
        expect={("reorder", "b")}, witness={8, 9},
        but="they agree",
        twin=(append(1, 1, 9, "a"), append(2, 1, 9, "b"), read(8, 2, 3, "a", "b"), read(9, 2, 3, "a", "b")),
    ),
    case(
        "the same number twice",
        append(1, 1, 2, "a", seqs=(1,)), append(2, 3, 4, "b", seqs=(1,)), read(9, 5, 6, "a", "b"),
        expect={("seq-clash", "b")}, witness={1, 2},
        but="numbers may skip",
        twin=(append(1, 1, 2, "a", seqs=(1,)), append(2, 3, 4, "b", seqs=(7,)), read(9, 5, 6, "a", "b")),
    ),
    case(
        "the number of a message changes",
        append(1, 1, 2, "a", seqs=(1,)), read(9, 3, 4, "a", seqs=(2,)),
        expect={("seq-clash", "a")}, witness={1, 9},
        but="it stays",
        twin=(append(1, 1, 2, "a", seqs=(1,)), read(9, 3, 4, "a", seqs=(1,))),
    ),
    case(
        "numbers against the order of a read",
        append(1, 1, 9, "a", seqs=(2,)), append(2, 1, 9, "b", seqs=(1,)), read(9, 10, 11, "a", "b"),
        expect={("seq-clash", "a")}, witness={1, 2, 9},
        but="with it",
        twin=(append(1, 1, 9, "a", seqs=(2,)), append(2, 1, 9, "b", seqs=(1,)), read(9, 10, 11, "b", "a")),
    ),
    case(
        "a later append got the smaller number, and no read shows both",
        append(1, 1, 2, "a", seqs=(5,)), append(2, 3, 4, "b", seqs=(4,)), read(9, 5, 6, "b", limit=1),
        expect={("seq-clash", "b")}, witness={1, 2},
        but="a retry gets the number of its first attempt",
        twin=(
            append(1, 1, 2, "a", seqs=(4,), key="k"), append(2, 3, 4, "b", seqs=(5,)),
            append(3, 5, 6, "a", seqs=(4,), key="k"), read(9, 7, 8, "b", limit=1),
        ),
    ),
    case(
        "a retry with the same key added the message again",
        append(1, 1, 2, "a", key="k"), append(2, 3, 4, "a", key="k"), read(9, 5, 6, "a", "a"),
        expect={("duplicate", "a")}, witness={1, 9},
        but="it added nothing",
        twin=(append(1, 1, 2, "a", key="k"), append(2, 3, 4, "a", key="k"), read(9, 5, 6, "a")),
    ),
    case(
        "the wrong end: the newest two are b and c",
        A, B, C, read(8, 7, 8, "a", "b", limit=2), read(9, 9, 10, "a", "b", "c"),
        expect={("window", "c")}, echoes={("stale", "c")}, witness={3, 8},
        but="the right end",
        twin=(A, B, C, read(8, 7, 8, "b", "c", limit=2), read(9, 9, 10, "a", "b", "c")),
    ),
    case(
        "more than was asked for",
        A, B, read(9, 5, 6, "a", "b", limit=1),
        expect={("window", "a")}, witness={1, 9},
        but="as many as were asked for",
        twin=(A, B, read(9, 5, 6, "a", "b", limit=2)),
    ),
    case(
        "fewer than the limit means everything, and a is not there",
        A, B, read(9, 5, 6, "b", limit=2),
        expect={("lost", "a")}, witness={1, 9},
        but="one was asked for",
        twin=(A, B, read(9, 5, 6, "b", limit=1)),
    ),
    case(
        "nobody wrote x",
        A, read(9, 3, 4, "a", "x"),
        expect={("phantom", "x")}, witness={9},
        but="x may have been written",
        twin=(A, lost_reply(2, 1, "x"), read(9, 3, 4, "a", "x")),
    ),
    case(
        "what definitely failed is shown",
        append(1, 1, 2, "a", status="fail"), read(9, 3, 4, "a"),
        expect={("phantom", "a")}, witness={1, 9},
        but="what failed at first and then went well",
        twin=(append(1, 1, 2, "a", status="fail", key="k"), append(2, 3, 4, "a", key="k"), read(9, 5, 6, "a")),
    ),
    case(
        "shown before it was written",
        append(1, 5, 6, "a"), read(9, 3, 4, "a"),
        expect={("phantom", "a")}, witness={1, 9},
        but="written while the read ran",
        twin=(append(1, 4, 6, "a"), read(9, 3, 4, "a")),
    ),
    case(
        "another session's message",
        append(1, 1, 2, "a", session="other"), read(7, 3, 4, "a", session="other"), read(9, 3, 4, "a"),
        expect={("leak", "a")}, witness={1, 9},
        but="each its own",
        twin=(append(1, 1, 2, "a", session="other"), read(7, 3, 4, "a", session="other"), read(9, 3, 4)),
    ),
    case(
        "forgotten and back again",
        A, forget(5, 3, 4), read(9, 5, 6, "a"),
        expect={("resurrected", "a")}, witness={1, 5, 9},
        but="a forget without a reply proves nothing",
        twin=(A, forget(5, 3, 4, status="info"), read(9, 5, 6, "a")),
    ),
    case(
        "a retry after the forget brings back what it had written before",
        append(1, 1, 2, "a", key="k"), forget(5, 3, 4), append(2, 5, 6, "a", key="k"), read(9, 7, 8, "a"),
        expect={("resurrected", "a")}, witness={1, 5, 9},
        but="only the retry was acknowledged, so it may be the one that wrote",
        twin=(lost_reply(1, 1, "a", key="k"), forget(5, 3, 4), append(2, 5, 6, "a", key="k"), read(9, 7, 8, "a")),
    ),
    case(
        "one forget cannot have come both before r and after it",
        A, forget(5, 1, 4), read(8, 5, 6, "a"), read(9, 7, 8),
        expect={("lost", "a")}, witness={8, 9},
        but="the forget was still running",
        twin=(A, forget(5, 1, 7), read(8, 5, 6, "a"), read(9, 7, 8)),
    ),
    case(
        "gone four seconds before its time",
        append(1, 0, 1 * S, "a"), read(9, 5 * S, 6 * S),
        expect={("expired-early", "a")}, witness={1, 9}, header=TTL,
        but="its ten seconds may have ended while the read ran",
        twin=(append(1, 0, 1 * S, "a"), read(9, 9 * S, 10 * S)),
    ),
    case(
        "refreshed by b, so a lives on with it",
        append(1, 0, 1 * S, "a"), append(2, 8 * S, 9 * S, "b"), read(9, 12 * S, 13 * S, "b"),
        expect={("lost", "a")}, witness={1, 9}, header=TTL,
        but="a may have expired before b was there",
        twin=(append(1, 0, 1 * S, "a"), append(2, 8 * S, 10 * S, "b"), read(9, 12 * S, 13 * S, "b")),
    ),
    case(
        "still there after one second to write, ten to live and none to spare",
        append(1, 0, 1 * S, "a"), read(9, 11 * S + 1, 12 * S, "a"),
        expect={("expired-late", "a")}, witness={1, 9}, header=TTL,
        but="in its last instant",
        twin=(append(1, 0, 1 * S, "a"), read(9, 11 * S, 12 * S, "a")),
    ),
    case(
        "the clock may be off by a second, and it was off by more",
        append(1, 0, 1 * S, "a"), read(9, 12 * S + 1, 13 * S, "a"),
        expect={("expired-late", "a")}, witness={1, 9}, header=ONE_SECOND_OFF,
        but="off by a second",
        twin=(append(1, 0, 1 * S, "a"), read(9, 12 * S, 13 * S, "a")),
    ),
    case(
        "what had expired stands before what came after",
        append(1, 0, 1 * S, "a"), append(2, 20 * S, 21 * S, "b"), read(9, 22 * S, 23 * S, "a", "b"),
        expect={("expired-late", "a")}, witness={1, 9}, header=TTL,
        but="it came in time to keep the session alive",
        twin=(append(1, 0, 1 * S, "a"), append(2, 11 * S, 21 * S, "b"), read(9, 22 * S, 23 * S, "a", "b")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_what_breaks_a_promise_is_named(case: Case) -> None:
    result = judge(to_history(list(case.ops), case.header))

    assert named(roots(result)) == case.expect
    assert named(result.anomalies) == case.expect | case.echoes
    for anomaly in result.anomalies:
        assert anomaly.confirmed
        assert set(anomaly.witness) <= {op.number for op in case.ops}
        assert anomaly.because
    assert any(case.witness <= set(anomaly.witness) for anomaly in result.anomalies)
    assert result.verdict is Verdict.BROKEN
    assert {p for p, v in result.promises.items() if v is Verdict.BROKEN} == {
        ANOMALIES[name] for name, _ in case.expect
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.twin_why)
def test_what_comes_near_and_breaks_nothing_raises_no_alarm(case: Case) -> None:
    history = to_history(list(case.twin), case.header)

    result = judge(history)

    assert result.anomalies == ()
    assert list(suspected(history)) == []
    assert result.verdict is Verdict.KEPT


BOUNDS = {
    "b is known, not in the window, and cannot stand before a beginning that another read shows": (
        [
            append(1, 3, 19, "a"),
            read(8, 8, 28, "a", limit=2),
            append(2, 14, 14, "b"),
            read(9, 16, 34, "a", limit=1),
        ],
        {("lost", "b"), ("window", "b")},
    ),
    "a stands before c and c before b, and b was acknowledged before a began": (
        [
            append(1, 5, 6, "a"),
            append(2, 1, 2, "b"),
            append(3, 1, 20, "c"),
            read(8, 7, 21, "a", "c", limit=2),
            read(9, 7, 21, "c", "b", limit=2),
        ],
        {("reorder", "a")},
    ),
    "y began early but stands after x, which began when m was known": (
        [
            append(1, 1, 4, "m"),
            append(2, 5, 6, "x"),
            append(3, 1, 20, "y"),
            read(9, 1, 20, "x", "y"),
        ],
        {("lost", "m")},
    ),
}


@pytest.mark.parametrize("why", BOUNDS)
def test_the_rules_alone_find_what_only_follows_from_others(why: str) -> None:
    """No read contradicts an append here: it takes a bound that spreads from one to another."""
    ops, expect = BOUNDS[why]
    history = to_history(ops)

    found = suspected(history).proven(partial(confirmed, history))

    assert expect <= named([one.anomaly for one in found])


def test_every_anomaly_has_a_case() -> None:
    elsewhere = {"doubled"}  # depends on what is claimed: test_verdict.py
    assert {name for case in CASES for name, _ in case.expect} == set(ANOMALIES) - elsewhere


def test_a_stale_read_says_by_how_much_and_whether_the_reader_was_the_writer() -> None:
    late = 3_000_000
    own = [append(1, 0, 0, "a"), read(8, late, late), read(9, 2 * late, 2 * late, "a")]
    other = [own[0], read(8, late, late, process=7), own[2]]

    (mine,) = judge(to_history(own)).anomalies
    (theirs,) = judge(to_history(other)).anomalies

    assert "3.000 ms stale, read by its own writer" in mine.because
    assert "another client" in theirs.because


def test_a_retry_may_have_kept_the_session_alive() -> None:
    first = append(1, 0, S, "a", key="k")
    retry = append(2, 9 * S, 10 * S, "a", key="k")

    with_retry = judge(to_history([first, retry, read(9, 15 * S, 16 * S, "a")], TTL))
    too_late = judge(to_history([first, retry, read(9, 21 * S, 22 * S, "a")], TTL))

    assert with_retry.anomalies == ()
    assert named(too_late.anomalies) == {("expired-late", "a")}


def test_an_open_append_makes_a_late_read_undecidable_and_it_is_counted() -> None:
    ops = [append(1, 0, S, "a"), lost_reply(2, 2 * S, "b"), read(9, 30 * S, 31 * S, "a")]

    result = judge(to_history(ops, TTL))

    assert result.anomalies == ()
    assert result.counts["undecided"] == 1
    assert result.promises["expiring"] is Verdict.UNKNOWN


def test_a_fault_closes_what_was_in_flight() -> None:
    """Closed at 3 and not there at 4 to 5, it cannot have come by 6."""
    ops = [lost_reply(1, 1, "a", closed=3), read(8, 4, 5), read(9, 6, 7, "a")]

    result = judge(to_history(ops))
    open_ = judge(to_history([lost_reply(1, 1, "a"), *ops[1:]]))

    assert named(result.anomalies) == {("stale", "a")}
    assert open_.anomalies == ()
