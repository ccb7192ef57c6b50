"""The plan of a client is pure: the same seed makes the same one."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.verify.workload.plan import MEETING, Shape, Step, ensure_operations, message, steps


def first(seed: int, client: str, shape: Shape, count: int = 400) -> list[Step]:
    return list(itertools.islice(steps(seed, client, shape), count))


@given(st.integers(), st.booleans(), st.booleans())
def test_the_same_seed_makes_the_same_plan(seed: int, keyed: bool, forgets: bool):
    shape = Shape("x", keyed=keyed, forgets=forgets)
    assert first(seed, "c1", shape, 100) == first(seed, "c1", shape, 100)


def test_another_seed_and_another_client_make_another_plan():
    shape = Shape("x")
    plans = [first(1, "c1", shape), first(2, "c1", shape), first(1, "c2", shape)]
    assert plans[0] != plans[1]
    assert [(s.f, s.session) for s in plans[0]] != [(s.f, s.session) for s in plans[2]]


def test_a_plan_has_everything_that_agents_do():
    plan = first(3, "c1", Shape("x"), 2000)
    assert {step.f for step in plan} == {"append", "history", "forget", "think"}
    assert {len(step.messages) for step in plan if step.f == "append"} == {1, 2, 3, 4, 5}
    assert {step.limit for step in plan if step.f == "history"} == {None, 1, 2, 5, 20}
    keys = Counter(step.key for step in plan if step.f == "append")
    assert max(keys.values()) > 1, "no retry"
    turns = list(zip(plan, plan[1:], plan[2:], strict=False))
    assert any((a.f, b.f, c.f) == ("history", "think", "append") for a, b, c in turns)


def test_a_retry_is_the_same_append_again():
    by_key: dict[str | None, set[Step]] = {}
    for step in first(4, "c1", Shape("x"), 3000):
        if step.f == "append":
            by_key.setdefault(step.key, set()).add(step)
    assert all(len(same) == 1 for same in by_key.values())


def test_what_a_store_does_not_claim_is_not_used():
    plan = first(5, "c1", Shape("x", keyed=False, forgets=False), 3000)
    assert {step.f for step in plan} == {"append", "history", "think"}
    written = [name for step in plan for name in step.messages]
    assert len(written) == len(set(written))
    assert {step.key for step in plan} == {None}


def test_sessions_stay_small_enough_to_be_read_whole():
    sizes = Counter[str]()
    for step in first(6, "c1", Shape("x"), 5000):
        sizes[step.session] += len(step.messages)
    assert max(sizes.values()) < 200


def test_a_step_survives_the_wire():
    for step in first(7, "c1", Shape("x")):
        assert Step.from_json(step.to_json() | {"messages": list(step.messages)}) == step


def test_a_message_says_who_it_is():
    assert message("c1.7.0")["content"].startswith("c1.7.0 ")
    assert message("c1.7.0") == message("c1.7.0")


def test_a_small_plan_is_the_same_few_operations_in_one_session_after_another():
    shape = Shape("x", operations=("append:2", "read:1", "forget", "retry"))
    plan = first(1, "x.c1", shape, 8)
    assert [step.f for step in plan] == ["append", "history", "forget", "append"] * 2
    assert plan[0] == plan[3] != plan[4] == plan[7]  # a retry has its key
    assert plan[0].key
    assert [step.session for step in plan] == ["x-c1-0"] * 4 + ["x-c1-1"] * 4
    assert len(plan[0].messages) == 2
    assert plan[1].limit == 1


def test_without_a_key_nothing_is_sent_twice():
    plan = first(1, "x.c1", Shape("x", keyed=False, operations=("append:1", "retry")), 50)
    assert len({step.messages for step in plan}) == 50


def test_several_clients_meet_in_each_session():
    plan = first(1, "x.c1", Shape("x", clients=2, operations=("append:1",)), 4)
    assert [step.f for step in plan] == ["meet", "append"] * 2
    assert {step.session for step in plan if step.f == "append"} == {MEETING}


@pytest.mark.parametrize(
    "word", ["append", "append:0", "append:x", "append:41", "forget:1", "x", ""]
)
def test_what_is_no_operation_is_refused(word: str):
    with pytest.raises(ValueError, match="append:N"):
        ensure_operations(["append:1", word])
