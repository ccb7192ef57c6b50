"""A store that keeps the newest only has lost nothing; one that cuts off more than it says has."""

from __future__ import annotations

import pytest

from holdfast.errors import NotAHistory
from holdfast.verify.history import Header, header_json, parse_history
from holdfast.verify.judge import Verdict, judge
from tests.verify.judge.oracle import Op
from tests.verify.judge.random_histories import to_history
from tests.verify.judge.writing import S, append, forget, read, roots

TWO = Header("hand", kept_last=2)
THREE = (append(1, 1, 2, "a"), append(2, 3, 4, "b"), append(3, 5, 6, "c"))
PAIR = (append(1, 1, 2, "a", "b"), append(2, 3, 4, "c"), append(3, 5, 6, "d"))


def broken(*ops: Op, header: Header = TWO) -> set[str]:
    result = judge(to_history(list(ops), header))
    found = {promise for promise, verdict in result.promises.items() if verdict is Verdict.BROKEN}
    assert bool(found) == bool(roots(result))
    return found


@pytest.mark.parametrize(
    "ops",
    [
        (*THREE, read(9, 7, 8, "b", "c")),
        (*THREE, read(9, 7, 8, "a", "b", "c")),  # it may keep more
        (*THREE, read(8, 7, 8, "b", "c"), read(9, 9, 10, "c", limit=1)),
        (*PAIR, read(9, 7, 8, "c", "d")),
        (*PAIR, read(9, 7, 8, "b", "c", "d", limit=3)),  # a window may begin within an append
        (*THREE, forget(4, 7, 8), append(5, 9, 10, "d"), read(9, 11, 12, "d")),
    ],
)
def test_what_was_cut_off_is_not_lost(ops: tuple[Op, ...]) -> None:
    assert broken(*ops) == set()


def test_the_same_is_lost_where_nothing_is_said_of_it() -> None:
    assert "durable" in broken(*THREE, read(9, 7, 8, "b", "c"), header=Header("hand"))


def test_fewer_than_it_keeps_are_lost() -> None:
    assert "durable" in broken(*THREE, read(9, 7, 8, "c"))
    assert "durable" in broken(*THREE, read(9, 7, 8))


def test_only_the_oldest_may_be_cut_off() -> None:
    assert broken(*THREE, read(9, 7, 8, "a", "c")) != set()
    assert broken(*THREE, read(9, 7, 8, "a", "b")) != set(), "the newest is missing"


def test_only_whole_appends_may_be_cut_off() -> None:
    assert "atomic" in broken(*PAIR, read(9, 7, 8, "b", "c", "d"))


def test_what_comes_back_after_it_was_cut_off_is_found() -> None:
    again = (*THREE, read(8, 7, 8, "c", "a"))
    assert broken(*again) != set()


def test_by_age_only_what_is_old_enough_may_be_cut_off() -> None:
    aged = Header("hand", kept_age_s=10.0)
    ops = (append(1, 1, 2, "a"), append(2, 3 * S, 4 * S, "b"))
    assert "durable" in broken(*ops, read(9, 5 * S, 6 * S, "b"), header=aged)
    assert broken(*ops, read(9, 19 * S, 20 * S, "b"), header=aged) == set()


def test_the_header_says_it_in_a_file_and_nonsense_is_refused() -> None:
    line = header_json(Header("t", kept_last=3, kept_age_s=2.5))
    assert (line["kept_last"], line["kept_age_s"]) == (3, 2.5)
    assert "kept_last" not in header_json(Header("t"))
    for wrong in (b"0", b"-1", b"true", b"1.5", b'"3"'):
        with pytest.raises(NotAHistory):
            parse_history([b'{"holdfast_history": 1, "target": "t", "kept_last": %b}\n' % wrong])
