"""What a read shows although it was gone: resurrected after a forget, or expired too late."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge.bounds import Bounds
from holdfast.verify.judge.case import NS_PER_S, Append, Case, Forget, Read
from holdfast.verify.judge.findings import Findings


def check_forgotten(case: Case, bounds: Bounds, found: Findings) -> None:
    """Report messages shown although a forget began after they were known and ended before."""
    forgets = sorted((f for f in case.forgets if f.certain), key=lambda forget: forget.inv)
    if not forgets:
        return
    invs = [forget.inv for forget in forgets]
    soonest = list(accumulate(reversed(forgets), _sooner))[::-1]
    for read in case.reads:
        for append in bounds.rows[read]:
            at = bisect_right(invs, bounds.latest[append].ns)
            if at < len(forgets) and soonest[at].comp < bounds.read_earliest(read).ns:
                _report_resurrected(bounds, read, append, soonest[at], found)


def _sooner(one: Forget, other: Forget) -> Forget:
    return one if one.comp < other.comp else other


def _report_resurrected(
    bounds: Bounds, read: Read, append: Append, forget: Forget, found: Findings
) -> None:
    known, began = bounds.latest[append], bounds.read_earliest(read)
    message = _shown(append, read)
    because = (
        f"forget {forget.number} began after {message!r} was there and ended before read "
        f"{read.number} took effect, which shows it again"
    )
    witness = (*known.ops, forget.number or 0, *began.ops, read.number)
    found.add("resurrected", message, witness, because, spare=(append.number,))


def check_expired(case: Case, bounds: Bounds, found: Findings) -> int:
    """Report messages shown after their time. Gives the number of reads nobody can decide."""
    if case.ttl_ns is None:
        return 0
    life_ns = case.ttl_ns + case.error_ns
    ends = _ends(case.appends, life_ns)
    known_ends = _ends([a for a in case.appends if a.comp < NEVER_NS], life_ns)
    undecided = 0
    for read in case.reads:
        began = bounds.read_earliest(read)
        late = [a for a in bounds.rows[read] if began.ns > ends[a]]
        for append in late:
            lived_s = (began.ns - append.inv) / NS_PER_S
            message = _shown(append, read)
            because = (
                f"read {read.number} shows {message!r} {lived_s:.3f} s after its append "
                f"began, and no write since can have kept the session alive"
            )
            witness = (append.number, *began.ops, read.number)
            found.add("expired-late", message, witness, because)
        if not late:
            row = bounds.rows[read]
            undecided += any(began.ns > known_ends.get(a, NEVER_NS) for a in row)
    return undecided


def _shown(append: Append, read: Read) -> str:
    """The first message of the batch that the read shows: a window may cut those before."""
    return next(message for message in append.ids if message in read.ids)


def _ends(appends: list[Append], life_ns: int) -> dict[Append, int]:
    """For each append, the latest time until which its session can have lived on.

    A write while the session may still live lets it live longer; a later one begins it anew.
    """
    tries = sorted((inv, comp, at) for at, a in enumerate(appends) for inv, comp in a.tries)
    ends: dict[Append, int] = {}
    group: list[Append] = []
    end = -1
    for inv, comp, at in tries:
        if inv > end:
            _close(group, end, ends)
            group, end = [], -1
        group.append(appends[at])
        end = max(end, comp + life_ns)
    _close(group, end, ends)
    return ends


def _close(group: list[Append], end: int, ends: dict[Append, int]) -> None:
    # A retry long after adds nothing, so the first group of an append is the one that counts.
    for append in group:
        ends.setdefault(append, end)
