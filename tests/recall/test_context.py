"""A prompt within its budget: whatever the messages, nothing is torn and nothing is over."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Hit, LimitExceeded, Message
from holdfast.recall.context import Parts, assemble, cost, estimate, units
from holdfast.turns import whole

WORDS = st.text("ab 好", min_size=0, max_size=40)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Turns in which tools are called, with several results, late or never."""
    found: list[Message] = [Message("system", "s")] * draw(st.integers(0, 1))
    for number in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["plain", "tool", "late", "open", "orphan"]))
        ids = [f"c{number}.{one}" for one in range(draw(st.integers(1, 2)))]
        call = Message("assistant", None, extra={"tool_calls": [{"id": one} for one in ids]})
        results = [Message("tool", draw(WORDS), extra={"tool_call_id": one}) for one in ids]
        turn = {
            "plain": [Message("user", draw(WORDS)), Message("assistant", draw(WORDS))],
            "tool": [call, *results],
            "late": [call, Message("user", "hurry up"), *results],
            "open": [call],
            "orphan": [Message("tool", "x", extra={"tool_call_id": "nobody"})],
        }[kind]
        found += turn
    return [
        Message(m.role, m.content, id=m.id, extra=dict(m.extra), seq=at)
        for at, m in enumerate(found, 1)
    ]


def called(messages: list[Message]) -> set[str]:
    return {call["id"] for m in messages for call in m.extra.get("tool_calls", ())}


def answered(messages: list[Message]) -> set[str]:
    return {m.extra["tool_call_id"] for m in messages if "tool_call_id" in m.extra}


@settings(max_examples=150, deadline=None)
@given(conversations(), st.integers(0, 400), st.lists(WORDS, max_size=4), WORDS)
def test_nothing_is_over_torn_doubled_or_silently_left_out(
    messages: list[Message], tokens: int, remembered: list[str], summary: str
):
    hits = [
        Hit("s", n, "memory", text, 1.0, Message("memory", text))
        for n, text in enumerate(remembered, 1)
    ]
    told = Message("summary", summary)
    covered = len(messages) // 2
    parts = Parts("s", messages, hits, told, covered, 0, 0, len(messages))
    try:
        made = assemble(parts, tokens)
    except LimitExceeded:
        [*_, newest] = [[], *units(whole([m for m in messages if m.role != "system"]))]
        system = [m for m in messages if m.role == "system"]
        assert sum(cost(m, estimate) for m in [*system, *newest]) > tokens
        return
    assert made.tokens <= tokens
    assert made.tokens == sum(cost(message, estimate) for message in made.messages)
    turns = list(made.turns)
    assert answered(turns) <= called(turns), "a result without its call"
    assert called(turns) & answered(messages) <= answered(turns), (
        "a call without a result that it has"
    )
    numbers = [message.seq or 0 for message in turns]
    assert numbers == sorted(set(numbers)), "out of order, or twice"
    left = {seq for first, last in made.left_out for seq in range(first, last + 1)}
    spoken = set(range(1, covered + 1)) if made.summary else set()
    shown = {message.seq for message in made.messages if message.seq}
    assert left | shown | spoken >= set(range(1, len(messages) + 1)), "left out without a word"
    assert not left & shown


def test_a_message_between_a_call_and_its_late_result_is_shown():
    call = Message("assistant", None, extra={"tool_calls": [{"id": "c1"}]}, seq=1)
    late = Message("tool", "42", extra={"tool_call_id": "c1"}, seq=3)
    asked = Message("user", "are you there?", seq=2)
    made = assemble(Parts("s", [call, asked, late], [], None, 0, 0, 0, 3), 400)
    assert list(made.turns) == [asked]


def test_the_estimate_is_rather_too_large():
    assert estimate("The quick brown fox jumps over the lazy dog.") == 10
    assert estimate("internationalization") == 4
    assert estimate("你好世界") == 4
    assert estimate("2026-11-15") == 6
