"""What is wrong with the summaries of a session: messages told by none of them, or twice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.verify.adapters.plain import Summary

NONE: Final = (
    "it has no summarize(session) and summaries(session), so it keeps no summaries that could be "
    "looked at"
)


def overlap(summaries: Iterable[Summary]) -> str:
    """The messages that two summaries tell, in words; empty where each is told by one."""
    upto = 0
    for one in in_order(summaries):
        if one.first <= upto:
            return f"{places(one.first, min(upto, one.last))} told by two summaries"
        upto = one.last
    return ""


def gap(summaries: Iterable[Summary], messages: int) -> str:
    """The first of so many messages that no summary tells, in words; empty where all are told."""
    upto = 0
    for one in in_order(summaries):
        if one.first > upto + 1:
            break
        upto = max(upto, one.last)
    else:
        if upto >= messages:
            return ""
    return f"of {messages} messages those after {upto} are told by no summary"


def repeated(summaries: Sequence[Summary], texts: Iterable[str]) -> str:
    """A text that one summary has twice: a running summary that was continued twice by it."""
    for one in summaries:
        for text in texts:
            if one.text.count(text) > 1:
                return f"{text!r} stands {one.text.count(text)} times in one summary"
    return ""


def wrong(summaries: Sequence[Summary], texts: Sequence[str]) -> str:
    """What is wrong with the summaries of a session in which just this was said, if anything."""
    return overlap(summaries) or gap(summaries, len(texts)) or repeated(summaries, texts)


def in_order(summaries: Iterable[Summary]) -> list[Summary]:
    """By what they tell, the earliest first."""
    return sorted(summaries, key=lambda one: (one.first, one.last))


def places(first: int, last: int) -> str:
    """Messages by their places, as a person says it."""
    return f"message {first} is" if first == last else f"messages {first} to {last} are"


def parse(answer: Iterable[dict[str, Any]]) -> list[Summary]:
    """Summaries as a client process wrote them down."""
    return [Summary(**each) for each in answer]
