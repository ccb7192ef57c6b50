"""What a read shows although a forget had taken it away before: resurrected."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from holdfast.verify.judge.case import Append, Case, Forget, Read
from holdfast.verify.judge.findings import Findings

_LOOKS_MAX: Final = 16
"""So many later reads are asked whether a message that came back is still there."""


def may_be_forgotten(case: Case, append: Append, read: Read) -> bool:
    """Whether a forget may have met a part of the batch before the read ended."""
    return any(f.inv <= read.comp and f.comp >= append.inv for f in case.forgets)


def check_forgotten(case: Case, found: Findings) -> None:
    """Report messages shown although a forget began after they were known and ended before.

    Afterwards they are no longer among the ids of the reads: what came back can stand anywhere.
    """
    forgets = Soonest(case)
    if not forgets:
        return
    known = _known(case)
    for read in case.reads:
        back = []
        for message in read.ids:
            forget = forgets.after(known[message].ns)
            if forget is not None and forget.comp < read.inv:
                _report(case, read, message, known[message], forget, found)
                back.append(message)
        if back:
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
    read: Read,
    message: str,
    known: _Known,
    forget: Forget,
    found: Findings,
) -> None:
    if found.has("resurrected", message):
        return
    because = (
        f"forget {forget.number} began after {known.words} and ended before read "
        f"{read.number} began, which shows it again"
    )
    seen = known.shown.comp < forget.inv
    witness = (known.number, forget.number or 0, read.number, *([known.shown.number] * seen))
    newer = any(case.writer[m].inv > forget.comp for m in read.ids)
    # The write came after its ack, or the forget; or the read is of before the forget.
    also = {"durable"} if newer and seen else {"durable", "fresh"}
    late = "fresh" in also and _is_gone_again(case, read, message)
    if case.writer[message].retried_after(forget.inv):
        also.add("exactly-once")
    found.add(
        "resurrected", message, witness, because,
        spare=(case.writer[message].number,),
        also=also,
        lean="fresh" if late else "",
        read=read.number,
    )  # fmt: skip


def _is_gone_again(case: Case, read: Read, message: str) -> bool:
    """Whether a later read of everything lacks it, and no forget can have taken it since.

    What came back would be there: then this read was late.
    """
    after = bisect_right(case.reads, read.comp, key=lambda other: other.inv)
    later = (other for other in case.reads[after : after + _LOOKS_MAX] if not other.cut)
    following = next((other for other in later if message not in other.ids), None)
    return following is not None and not any(
        f.inv <= following.comp and f.comp >= read.inv for f in case.forgets
    )
