"""Tool calls and their results in a history: what a model may be shown of it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Message, turns
from holdfast.integrations import forms


def openai(*calls: str) -> Message:
    return Message("assistant", None, extra={"tool_calls": [{"id": one} for one in calls]})


def answer(call: str) -> Message:
    return Message("tool", f"result of {call}", extra={"tool_call_id": call})


def item(kind: str, call: str | None = None) -> Message:
    return forms.from_openai_agents({"type": kind, "call_id": call} if call else {"type": kind})


def chain(call: str) -> Message:
    data = {"content": "", "type": "ai", "tool_calls": [{"id": call, "name": "f", "args": {}}]}
    return forms.from_langchain({"type": "ai", "data": data})


def chain_answer(call: str) -> Message:
    data = {"content": "x", "type": "tool", "tool_call_id": call}
    return forms.from_langchain({"type": "tool", "data": data})


def llama(call: str) -> Message:
    block = {"block_type": "tool_call", "tool_call_id": call, "tool_name": "f", "tool_kwargs": {}}
    return forms.from_llama_index({"role": "assistant", "blocks": [block]})


def llama_answer(call: str) -> Message:
    rest = {"additional_kwargs": {"tool_call_id": call}}
    return forms.from_llama_index({"role": "tool", "content": "x", **rest})


def anthropic(call: str) -> Message:
    return Message("assistant", [{"type": "tool_use", "id": call, "name": "f", "input": {}}])


def anthropic_answer(call: str) -> Message:
    return Message("user", [{"type": "tool_result", "tool_use_id": call, "content": "x"}])


FORMS: list[Any] = [
    (openai, answer),
    (lambda call: item("function_call", call), lambda call: item("function_call_output", call)),
    (chain, chain_answer),
    (llama, llama_answer),
    (anthropic, anthropic_answer),
]
HELLO, MORE = Message("user", "hello"), Message("user", "more")


@pytest.mark.parametrize(("call", "result"), FORMS)
def test_a_call_without_result_is_left_out_or_closed_in_every_form(call: Any, result: Any):
    cut = [HELLO, call("a"), result("a"), call("b")]
    assert turns.open_calls(cut) == ["b"]
    assert turns.whole(cut) == tuple(cut[:3])
    closed = turns.repaired(cut)
    assert closed[:4] == tuple(cut)
    assert turns.results_of(closed[4]) == ["b"]
    assert "interrupted" in str(closed[4].content)
    assert closed[4].seq is None
    assert turns.open_calls(closed) == []
    later = [*cut, MORE]
    assert turns.whole(later) == (*cut[:3], MORE)
    assert turns.repaired(later)[-1] == MORE
    answered = [*cut, result("b"), MORE]
    assert turns.whole(answered) == turns.repaired(answered) == tuple(answered)


@pytest.mark.parametrize(("call", "result"), FORMS)
def test_a_result_without_call_is_left_out_in_every_form(call: Any, result: Any):
    assert turns.whole([result("a"), HELLO]) == (HELLO,)
    assert turns.repaired([result("a"), HELLO]) == (HELLO,)
    twice = [call("a"), result("a"), result("a"), HELLO]
    assert turns.whole(twice) == (*twice[:2], HELLO)


@pytest.mark.parametrize(("call", "result"), [FORMS[0], *FORMS[2:]])
def test_a_result_that_came_after_the_talk_went_on_is_left_out_or_put_behind_its_call(
    call: Any, result: Any
):
    """An API takes results only right behind the message that makes the calls."""
    late = [HELLO, call("a"), MORE, result("a"), call("b"), result("b")]
    assert turns.whole(late) == (HELLO, MORE, *late[4:])
    assert turns.repaired(late) == (HELLO, late[1], late[3], MORE, *late[4:])
    between = [call("a"), call("b"), result("a"), result("b")]
    assert turns.whole(between) == (between[1], between[3])
    assert turns.repaired(between) == (between[0], between[2], between[1], between[3])
    assert turns.open_calls(late) == turns.open_calls(between) == []
    beside_an_open_one = [between[0], call("c"), between[2]]
    assert turns.whole(beside_an_open_one) == (between[0], between[2])


def test_the_items_of_the_agents_sdk_are_matched_by_id_wherever_they_stand():
    items = [item("function_call", "a"), HELLO, item("function_call_output", "a")]
    assert turns.whole(items) == turns.repaired(items) == tuple(items)


def test_of_several_calls_one_was_answered_late():
    late = [openai("a", "b"), answer("a"), MORE, answer("b")]
    assert turns.whole(late) == (MORE,)
    assert turns.repaired(late) == (late[0], late[3], late[1], MORE)
    never = [openai("a", "b"), MORE, answer("b")]
    closed = turns.repaired(never)
    assert closed[:2] == (never[0], never[2])
    assert [turns.results_of(closed[2]), closed[3]] == [["a"], MORE]


def test_of_several_calls_some_answered():
    cut = [HELLO, openai("a", "b"), answer("a"), MORE]
    assert turns.whole(cut) == (HELLO, MORE)
    closed = turns.repaired(cut)
    assert closed[:3] == tuple(cut[:3])
    assert turns.results_of(closed[3]) == ["b"]
    assert closed[4] == MORE


def test_an_id_that_is_used_again_is_another_call():
    again = [openai("a"), answer("a"), openai("a")]
    assert turns.whole(again) == tuple(again[:2])
    assert turns.open_calls([openai("a"), openai("a"), answer("a")]) == ["a"]


def test_reasoning_goes_with_the_call_that_it_led_to():
    thought = item("reasoning")
    cut = [HELLO, thought, item("function_call", "a")]
    assert turns.whole(cut) == (HELLO,)
    assert len(turns.repaired(cut)) == 4


def test_a_call_that_takes_no_text_for_an_answer_is_left_out():
    assert turns.repaired([HELLO, item("computer_call", "a")]) == (HELLO,)


@pytest.mark.parametrize("odd", [None, 1, "x", [1], [None], {}, [{}], [{"id": 1}], [["id"]]])
def test_fields_of_another_kind_are_no_calls(odd: Any):
    extra = {"tool_calls": odd, "tool_call_id": odd if odd != "x" else None}
    extra |= {"langchain": {"data": odd}, "openai_agents": odd, "llama_index": {"x": odd}}
    extra |= {"adk": {"event": {"long_running_tool_ids": odd}}, "pydantic_ai": odd}
    kinds = ("function_call", "tool-call", "function_approval_response", odd)
    parts = [{"type": kind, "part": odd, "call_id": odd if odd != "x" else 1} for kind in kinds]
    message = Message("assistant", [odd, *parts], extra=extra)
    assert turns.calls_of(message) == []
    assert turns.results_of(message) == []
    assert turns.whole([message]) == (message,)
