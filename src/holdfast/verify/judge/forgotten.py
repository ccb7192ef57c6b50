"""What a read shows although a forget had taken it away before: resurrected, or a late read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from holdfast.verify.judge.case import Case, Forget, Read
from holdfast.verify.judge.findings import Findings

_LOOKS_MAX: Final = 16
"""So many later reads are asked whether a message that came back is still there."""


def check_forgotten(case: Case, found: Findings) -> None:
    """Report messages shown although a forget began after they were known and ended before.

    Afterwards they are no longer among the ids of the reads: what came back can stand anywhere.
    """
    forgets = Soonest(case)
    if not forgets:
        return
    known = _known(case)
    for at, read in enumerate(case.reads):
        back: dict[str, Forget] = {}
        for message in read.ids:
            forget = forgets.after(known[message].ns)
            if forget is not None and forget.comp < read.inv:
                back[message] = forget
        if back:
            _report(case, at, {m: (known[m], back[m]) for m in back}, found)
            read.back = frozenset(back)
            read.ids = tuple(message for message in read.ids if message not in read.back)


class Soonest:
    """Of the forgets that certainly took effect and began after a time, the one that ended first."""

    def __init__(self, case: Case) -> None:
        forgets = sorted((f for f in case.forgets if f.certain), key=lambda forget: forget.inv)
        self._invs = [forget.inv for forget in forgets]
        self._soonest = list(accumulate(reversed(forgets), _sooner))[::-1]

    def __bool__(self) -> bool:
        return bool(self._invs)

    def after(self, time_ns: int) -> Forget | None:
        """That forget, if there is one."""
        at = bisect_right(self._invs, time_ns)
        return self._soonest[at] if at < len(self._invs) else None


def _sooner(one: Forget, other: Forget) -> Forget:
    return one if one.comp < other.comp else other


@dataclass(frozen=True, slots=True)
class _Known:
    """When a message was known, by which operation, and in words; the first read that shows it."""

    ns: int
    number: int
    words: str
    shown: Read


def _known(case: Case) -> dict[str, _Known]:
    known: dict[str, _Known] = {}
    for read in sorted(case.reads, key=lambda read: read.comp):
        for message in read.ids:
            if message not in known:
                append = case.writer[message]
                if append.acked and append.comp <= read.comp:
                    words = f"{message!r} was acknowledged (append {append.ack_number})"
                    known[message] = _Known(append.comp, append.ack_number, words, read)
                elif append.comp <= read.comp:
                    # What a fault ended can have no later effect: shown at all, it was there.
                    words = f"a fault ended append {append.number} of {message!r}"
                    known[message] = _Known(append.comp, append.number, words, read)
                else:
                    words = f"{message!r} was shown by read {read.number}"
                    known[message] = _Known(read.comp, read.number, words, read)
    return known


def _report(
    case: Case,
    at: int,
    back: dict[str, tuple[_Known, Forget]],
    found: Findings,
) -> None:
    read = case.reads[at]
    back = {m: known for m, known in back.items() if not found.has("resurrected", m)}
    newest = max(case.writer[message].inv for message in read.ids)
    following = [(other, set(other.ids)) for other in _following(case, at)]
    for message, (known, forget) in back.items():
        because = (
            f"forget {forget.number} began after {known.words} and ended before read "
            f"{read.number} began, which shows it again"
        )
        append = case.writer[message]
        seen = known.shown.comp < forget.inv
        witness = (known.number, forget.number or 0, read.number)
        # The write came after its ack, or the forget; or the read is of before the forget.
        also = {"durable"} if newest > forget.comp else {"durable", "fresh"}
        if append.retried_after(forget.inv):
            also.add("exactly-once")
        gone = next((other.number for other, ids in following if message not in ids), None)
        lean = "forgotten" if following else ""
        if gone is not None:
            # What came back would have stayed: the read is of an earlier instant, or of two.
            name, lean = ("stale", "fresh") if "fresh" in also else ("hole", "snapshot")
            found.add(
                name, message, (*witness, gone), f"{because}, and the later read {gone} does not",
                spare=(append.number,), also=also | {"forgotten"}, lean=lean, read=read.number,
            )  # fmt: skip
            also.add(lean)
        found.add(
            "resurrected", message, (*witness, *([known.shown.number] * seen)), because,
            spare=(append.number,), also=also, lean=lean, read=read.number,
        )  # fmt: skip


def _following(case: Case, at: int) -> Iterable[Read]:
    """The next reads of everything, until a forget can have taken something once more.

    What came back would be there: what they lack was shown by a late read.
    """
    read = case.reads[at]
    after = bisect_right(case.reads, read.comp, key=lambda other: other.inv)
    for other in case.reads[after : after + _LOOKS_MAX]:
        if case.spans.meet(read.inv, other.comp):
            return
        if not other.cut:
            yield other
