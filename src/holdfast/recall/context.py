"""A prompt within a budget of tokens. Pure.

Kept together: a message that calls tools, and everything up to the last of its results. A
model refuses a prompt with one and without the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.errors import LimitExceeded
from holdfast.model import Context, Hit, Message
from holdfast.recall.summaries import text_of
from holdfast.turns import calls_of, results_of
from holdfast.turns import whole as whole_turns

Count = Callable[[str], int]

MESSAGE_TOKENS: Final = 4
"""What a model's own framing of a message takes, about."""
_SHARE: Final = 4
"""Memories and the summary get at most a quarter each of what the newest turn leaves."""
_PIECES: Final = re.compile(r"[a-zA-Z]{1,6}|[0-9]{1,3}|\s+|.", re.DOTALL)
SYSTEM: Final = frozenset({"system", "developer"})


def estimate(text: str) -> int:
    """About how many tokens a text has, rather too many than too few; for any model."""
    return sum(1 for piece in _PIECES.finditer(text) if not piece[0].isspace())


@dataclass(frozen=True, slots=True)
class Parts:
    """What a context may be made from, all of one instant."""

    session: str
    messages: Sequence[Message]
    """System messages from the beginning, and the newest."""
    hits: Sequence[Hit]
    summary: Message | None
    covered: int
    """The number up to which the summary speaks for the messages."""
    behind: int
    floor: int
    """Visible numbers are above this one, up to `last`."""
    last: int
    trimmed: int = 0
    """Messages that were cut off before those."""


def units(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages in order, cut only where no tool call is parted from a result of it."""
    ends = {at: at for at in range(len(messages))}
    calls: dict[str, int] = {}
    for at, message in enumerate(messages):
        for result in results_of(message):
            if result in calls:
                ends[calls[result]] = at
        for call in calls_of(message):
            calls[call] = at
    found: list[list[Message]] = []
    upto = -1
    for at, message in enumerate(messages):
        if at > upto:
            found.append([])
        upto = max(upto, ends[at])
        found[-1].append(message)
    return found


def assemble(parts: Parts, tokens: int, count: Count = estimate) -> Context:
    """Fill the budget: system, the newest turn, then memories, the summary and older turns."""
    system = [message for message in parts.messages if message.role in SYSTEM]
    whole = units(whole_turns(_said(parts.messages)))
    room = tokens - sum(cost(message, count) for message in system)
    newest = whole[-1] if whole else []
    room -= sum(cost(message, count) for message in newest)
    if room < 0:
        raise LimitExceeded(
            f"the system messages and the newest turn alone take {tokens - room} tokens, and "
            f"{tokens} are allowed. Allow more, or shorten them"
        )
    share = room // _SHARE
    sure = _newest_that_fit(whole[:-1], room - 2 * share, count)
    hits = _hits_that_fit(parts, _numbers([*sure, newest]), share, count)
    beside = [_memories(hits)] if hits else []
    room -= sum(cost(message, count) for message in beside)
    older = _newest_that_fit(whole[:-1], room, count)
    summary = _summary(parts, min(_numbers([*older, newest]), default=0), share, count)
    if summary is not None:
        beside.append(summary)
        older = _newest_that_fit(whole[:-1], room - cost(summary, count), count)
    turns = [message for unit in [*older, newest] for message in unit]
    messages = (*system, *beside, *turns)
    return Context(
        messages,
        sum(cost(message, count) for message in messages),
        hits,
        summary,
        tuple(turns),
        _left_out(parts, _numbers([system, turns]), summary),
        parts.behind,
        parts.last,
    )


def cost(message: Message, count: Count) -> int:
    """What a message takes of the budget; everything that is sent counts."""
    size = count(text_of(message)) + count(message.role) + MESSAGE_TOKENS
    if isinstance(message.content, list):
        size += count(json.dumps(message.content, ensure_ascii=False))
    if message.extra:
        size += count(json.dumps(message.extra, ensure_ascii=False))
    return size


def _said(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role not in SYSTEM]


def _numbers(of: Sequence[Sequence[Message]]) -> set[int]:
    return {message.seq for unit in of for message in unit if message.seq is not None}


def _newest_that_fit(
    whole: Sequence[list[Message]], room: int, count: Count
) -> list[list[Message]]:
    """Without a gap, from the newest on."""
    chosen: list[list[Message]] = []
    for unit in reversed(whole):
        room -= sum(cost(message, count) for message in unit)
        if room < 0:
            break
        chosen.append(unit)
    return chosen[::-1]


def _summary(parts: Parts, first: int, share: int, count: Count) -> Message | None:
    """The running summary, its newest lines if it is too long; none where every turn is shown."""
    if parts.summary is None or first <= parts.floor - parts.trimmed + 1:
        return None
    lines = text_of(parts.summary).split("\n")
    for kept in range(len(lines), 0, -1):
        text = "Summary of the conversation so far:\n" + "\n".join(lines[-kept:])
        message = Message("system", text, id=parts.summary.id, created_at=parts.summary.created_at)
        if cost(message, count) <= share:
            return message
    return None


def _hits_that_fit(parts: Parts, kept: set[int], share: int, count: Count) -> tuple[Hit, ...]:
    """The best, of those that no turn shows anyway."""
    chosen: list[Hit] = []
    for hit in parts.hits:
        shown = hit.session == parts.session and hit.seq in kept
        if hit.kind == "message" and (shown or hit.message.role in SYSTEM):
            continue
        if cost(_memories([*chosen, hit]), count) <= share:
            chosen.append(hit)
    return tuple(chosen)


def _memories(hits: Sequence[Hit]) -> Message:
    lines = [f"- {hit.text} ({hit.kind} {hit.seq} of {hit.session})" for hit in hits]
    text = "Known from earlier, the most relevant first:\n" + "\n".join(lines)
    return Message("system", text, id="holdfast-memories", created_at=None)


def _left_out(
    parts: Parts, shown: set[int], summary: Message | None
) -> tuple[tuple[int, int], ...]:
    """Ranges of numbers that nothing of the context speaks for."""
    at = max(parts.floor, parts.covered if summary is not None else 0) + 1
    found: list[tuple[int, int]] = []
    for seq in [*sorted(seq for seq in shown if seq >= at), parts.last + 1]:
        if seq > at:
            found.append((at, seq - 1))
        at = seq + 1
    return tuple(found)
