"""6 snapshot: one read is one consistent cut, and pages do not shift."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast import UsageError
from tests.contract.harness import AnyStore, say, texts


@pytest.fixture
def ten(store: AnyStore) -> AnyStore:
    store.append("s", [say(str(number)) for number in range(1, 11)])
    return store


PAGES: list[tuple[dict[str, Any], Iterable[int]]] = [
    ({}, range(1, 11)),
    ({"limit": 3}, range(8, 11)),
    ({"limit": 99}, range(1, 11)),
    ({"limit": 0}, ()),
    ({"before": 5}, range(1, 5)),
    ({"before": 5, "limit": 2}, (3, 4)),
    ({"after": 5}, range(6, 11)),
    ({"after": 5, "limit": 2}, (6, 7)),
    ({"after": 2, "before": 6}, (3, 4, 5)),
    ({"after": 2, "before": 6, "limit": 2}, (3, 4)),
    ({"after": 10}, ()),
    ({"before": 1}, ()),
    ({"before": 0}, ()),
    ({"after": 0, "limit": 1}, (1,)),
    ({"before": 10**12, "limit": 1}, (10,)),
    ({"after": 10**12}, ()),
    ({"after": 7, "before": 3}, ()),
]


def test_pages_are_named_by_numbers(ten: AnyStore):
    for arguments, expected in PAGES:
        page = ten.history("s", **arguments)
        assert [message.seq for message in page] == list(expected), arguments
        assert texts(page) == [str(number) for number in expected], arguments
        assert page.last == 10, arguments


def test_pages_do_not_shift_while_others_write(ten: AnyStore):
    newest = ten.history("s", limit=4)
    ten.append("s", [say("11"), say("12")])
    older = ten.history("s", limit=4, before=newest[0].seq)
    assert texts(older) + texts(newest) == [str(number) for number in range(3, 11)]
    assert texts(ten.history("s", after=newest[-1].seq)) == ["11", "12"]


def test_history_is_a_sequence(ten: AnyStore):
    history = ten.history("s")
    assert len(history) == 10
    assert history[0].content == "1"
    assert history[-1].content == "10"
    assert texts(history[2:4]) == ["3", "4"]
    assert next(reversed(history)).content == "10"
    assert history == list(history)
    assert history == ten.history("s")
    assert history != list(history)[1:]


def test_bounds_that_are_no_numbers_are_refused(ten: AnyStore):
    for argument, value in itertools.product(("limit", "before", "after"), (-1, 1.5, "3", True)):
        with pytest.raises(UsageError, match=argument):
            ten.history("s", **{argument: value})  # type: ignore[arg-type]
    assert len(ten.history("s")) == 10
