"""Whether reads agree on one order, and whether that order agrees with time: reorder."""

from __future__ import annotations

from itertools import pairwise

from holdfast.verify.judge.bounds import Bounds
from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.findings import Findings


def check_order(case: Case, bounds: Bounds, found: Findings) -> None:
    """Report messages that stand before what was acknowledged before they began."""
    _check_agreement(bounds, found)
    for read in case.reads:
        _check_time(read, bounds.rows[read], found)
    if found.names("reorder"):
        return  # the bounds would only say the same again, about the neighbours
    for append in case.appends:
        low, high = bounds.earliest[append], bounds.latest[append]
        if low.ns > high.ns:
            because = (
                f"{append.ids[0]!r} was there by the end of operation {high.ops[0]}, and stands "
                f"after what began only later, as operation {low.ops[0]} shows"
            )
            found.add("reorder", append.ids[0], (append.number, *low.ops, *high.ops), because)


def _check_agreement(bounds: Bounds, found: Findings) -> None:
    """Compare every read with the longest, then look for what only three or more show."""
    if not bounds.cycle:
        return
    longest = max(bounds.rows, key=lambda read: len(read.ids))
    place = {append: at for at, append in enumerate(bounds.rows[longest])}
    for read, row in bounds.rows.items():
        for first, second in pairwise([append for append in row if append in place]):
            if place[first] > place[second]:
                _disagree(first, second, longest, read, found)
    reads = [bounds.before[b][a] for a, b in pairwise(bounds.cycle)]
    because = "these reads together show messages in a circle: no one order fits them all"
    steps = [append.number for append in bounds.cycle]
    found.add("reorder", bounds.cycle[0].ids[0], (*(r.number for r in reads), *steps[:1]), because)


def _disagree(first: Append, second: Append, one: Read, other: Read, found: Findings) -> None:
    a, b = first.ids[0], second.ids[0]
    because = f"read {other.number} shows {a!r} before {b!r}, read {one.number} after it"
    found.add("reorder", a, (first.number, second.number, one.number, other.number), because)


def _check_time(read: Read, row: list[Append], found: Findings) -> None:
    newest: Append | None = None
    for append in row:
        if newest is not None and append.comp < newest.inv:
            because = (
                f"{append.ids[0]!r} was written before append {newest.number} began, "
                f"yet read {read.number} shows it after {newest.ids[0]!r}"
            )
            witness = (append.number, append.ack_number, newest.number, read.number)
            found.add("reorder", append.ids[0], witness, because)
        if newest is None or append.inv > newest.inv:
            newest = append
