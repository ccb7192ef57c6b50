"""Answers without a model: what was told before, said back with the day. Pure, the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.chat.noticing import can_turn, day, is_filler, memories_in, turned

SURE: Final = 0.34
"""From this score on a memory is taken for an answer."""
LIKELY: Final = 0.25
"""From this score on it is mentioned, with doubt."""
CLOSE: Final = 0.75
"""Further memories are mentioned if they score so much of the best."""
REMEMBERED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Remembered:
    """Something that was remembered: what, when, how well it fits."""

    text: str
    at: datetime | None
    score: float


def reply(text: str, remembered: Sequence[Remembered], now: datetime, *, behind: int = 0) -> str:
    """The answer to a message, from what was told before it; best first."""
    noted = memories_in(text)
    fitting = [one for one in remembered if one.text not in noted]
    answer = _noted(noted, fitting, now) if noted else _answered(fitting, now)
    answer = "All right." if is_filler(text) else answer
    if behind:
        answer += f" (I have not looked through {behind} newer records yet.)"
    return answer


def _noted(noted: Sequence[str], remembered: Sequence[Remembered], now: datetime) -> str:
    said = " and that ".join(turned(one) if can_turn(one) else f"“{one}”" for one in noted)
    answer = f"I will remember that {said}."
    if remembered and remembered[0].score >= SURE:
        answer += f" {_sentence(remembered[0], now)}"
    return answer


def _answered(remembered: Sequence[Remembered], now: datetime) -> str:
    if not remembered or remembered[0].score < LIKELY:
        return "I do not know that yet. Tell me, and I will remember it."
    best = remembered[0].score
    if best < SURE:
        return f"I am not sure, but perhaps this: {_sentence(remembered[0], now)}"
    kept = [one for one in remembered[:REMEMBERED_MAX] if one.score >= max(SURE, CLOSE * best)]
    return " ".join(_sentence(one, now) for one in kept)


def _sentence(one: Remembered, now: datetime) -> str:
    when = "" if one.at is None else f" {day(one.at.astimezone(now.tzinfo), now)}"
    if can_turn(one.text):
        return f"You told me{when} that {turned(one.text)}."
    return f"You told me{when}: “{one.text}”."
