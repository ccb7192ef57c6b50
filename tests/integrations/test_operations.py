"""What several of our operations make of one of a framework's, on a real store."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    Conflict,
    Damaged,
    EngineUnreachable,
    Message,
    OutcomeUnknown,
    Store,
    UsageError,
)
from holdfast.integrations import framework_operations
from holdfast.integrations.framework_operations import StepRunner
from holdfast.verify.records import flip_one


def ended(steps: Any, reply: Any) -> Any:
    with pytest.raises(StopIteration) as end:
        steps.send(reply)
    return end.value.value


def test_a_batch_whose_reply_was_lost_is_added_once(store: Store):
    steps = framework_operations.add("s", [Message("user", "a"), Message("assistant", "b")])
    next(steps)(store)
    again = steps.throw(OutcomeUnknown("the reply was lost"))
    assert ended(steps, again(store)).repeated
    assert [message.content for message in store.history("s")] == ["a", "b"]


def test_a_reply_that_stays_lost_is_an_error_in_the_end():
    steps = framework_operations.add("s", [Message("user", "a")])
    next(steps)
    with pytest.raises(OutcomeUnknown):
        for _ in range(framework_operations.TRIES):
            steps.throw(OutcomeUnknown("the reply was lost"))


def test_what_may_have_been_done_is_not_said_to_be_undone_because_a_later_try_was(store: Store):
    steps = framework_operations.add("s", [Message("user", "a")])
    next(steps)(store)
    steps.throw(OutcomeUnknown("the reply was lost"))
    with pytest.raises(OutcomeUnknown) as told:
        steps.throw(EngineUnreachable("it is down now; nothing was written"))
    assert isinstance(told.value.__cause__, EngineUnreachable)


def test_what_was_not_done_at_once_is_said_to_be_so():
    steps = framework_operations.add("s", [Message("user", "a")])
    next(steps)
    with pytest.raises(EngineUnreachable):
        steps.throw(EngineUnreachable("it is down; nothing was written"))


def test_what_was_added_meanwhile_is_not_lost_when_one_is_taken_out(store: Store):
    store.append("s", [Message("user", "a"), Message("user", "b")])
    steps = framework_operations.pop("s", 0)
    rewrite = steps.send(next(steps)(store))
    store.append("s", Message("user", "c"))
    with pytest.raises(Conflict) as clash:
        rewrite(store)
    rewrite = steps.send(steps.throw(clash.value)(store))
    taken = ended(steps, rewrite(store))
    assert taken.content == "a"
    assert [message.content for message in store.history("s")] == ["b", "c"]


@pytest.mark.parametrize("place", [-3, 2, 5])
def test_where_there_is_no_message_none_is_taken(store: Store, place: int):
    store.append("s", [Message("user", "a"), Message("user", "b")])
    assert StepRunner(store).run(framework_operations.pop("s", place)) is None
    assert store.stat("s").last == 2


def test_a_session_with_damage_is_not_rewritten(store: Store, url: str):
    store.append("s", [Message("user", text) for text in "abc"])
    flip_one(url, "default", "s")
    with pytest.raises(Damaged, match=r"cannot be read \(2\)"):
        StepRunner(store).run(framework_operations.pop("s", -1))
    assert [damage.seq for damage in store.history("s").damaged] == [2]


def test_all_names_are_listed_page_after_page(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.integrations.framework_operations.PAGE_SESSIONS", 2)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        store.append(name, Message("user", "x"))
    assert StepRunner(store).run(framework_operations.names()) == names


def test_ids_make_a_key_only_where_every_message_has_one():
    assert framework_operations.key_of_ids("k", ["a", None]) is None
    assert framework_operations.key_of_ids("k", []) is None
    keys = {
        framework_operations.key_of_ids("k", ids)
        for ids in (["a", "b"], ["ab"], ["b", "a"], ["a:b"])
    }
    assert len(keys) == 4


def test_what_is_no_store_is_refused():
    with pytest.raises(UsageError, match=r"holdfast.connect\(url\) opens one"):
        StepRunner("sqlite:///memory.db")  # type: ignore[arg-type]
