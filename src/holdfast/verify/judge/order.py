"""Whether reads agree on one order, and whether that order agrees with time: reorder."""

from __future__ import annotations

from itertools import pairwise

from holdfast.verify.judge.case import Append, Read
from holdfast.verify.judge.facts import Facts
from holdfast.verify.judge.findings import Findings


def check_order(facts: Facts, found: Findings) -> None:
    """Report messages that stand before what was there before they began, and disagreements."""
    reported: set[Append] = set()
    for read, row in facts.rows.items():
        _check_time(facts, read, row, reported, found)
    longest = max(facts.rows, key=lambda read: len(read.ids), default=None)
    if longest is None:
        return
    place = {append: at for at, append in enumerate(facts.rows[longest])}
    for read, row in facts.rows.items():
        for first, second in pairwise([append for append in row if append in place]):
            if (
                place[first] > place[second]
                and first not in reported
                and _disagree(facts, first, second, longest, read, found)
            ):
                reported.add(first)


def _disagree(
    facts: Facts, first: Append, second: Append, one: Read, other: Read, found: Findings
) -> bool:
    both = set(one.ids) & set(other.ids)
    a, b = (next((m for m in x.ids if m in both), "") for x in (first, second))
    if not a or not b:
        return False  # each shows another part of it
    because = f"read {other.number} shows {a!r} before {b!r}, read {one.number} after it"
    witness = (first.number, second.number, one.number, other.number)
    also = _also(facts, first, second, read=other)
    found.add("reorder", a, witness, because, also=also, read=other.number)
    return True


def _also(facts: Facts, *appends: Append, read: Read) -> set[str]:
    """What a forget took away, and what came back, can stand anywhere."""
    forgotten = any(facts.case.may_be_forgotten(append, read) for append in appends)
    return {"forgotten"} if forgotten else set()


def _check_time(
    facts: Facts, read: Read, row: list[Append], reported: set[Append], found: Findings
) -> None:
    newest: Append | None = None
    for append in row:
        known_ns = min(append.comp, facts.known_ns[append])
        if newest is not None and known_ns < newest.inv and append not in reported:
            reported.add(append)
            _report_late(facts, read, append, newest, found)
        if newest is None or append.inv > newest.inv:
            newest = append


def _report_late(facts: Facts, read: Read, append: Append, newest: Append, found: Findings) -> None:
    sight = facts.known_before(append, newest.inv)
    known_by = append.ids if sight is None else sight.ids
    a = next((m for m in reversed(append.ids) if m in read.ids and m in known_by), None)
    if a is None:
        return  # each shows another part of it
    x = facts.shown_message(newest, read)
    if sight is None:
        number, known = append.number, f"append {append.number} of {a!r} was ended by a fault"
    else:
        number, known = sight.number, f"{a!r} was {sight.words}"
    because = (
        f"{known} before append {newest.number} of {x!r} began, "
        f"yet read {read.number} shows {a!r} after {x!r}"
    )
    witness: tuple[int, ...] = (append.number, number, newest.number, read.number)
    also = _also(facts, append, read=read)
    seen = facts.shown_before(append, newest.inv)
    if seen is None:
        also |= {"durable", "fresh"}  # acknowledged before it was written
    else:
        witness = (*witness, seen.number)
    if append.retried_after(newest.inv):
        also.add("exactly-once")
    found.add("reorder", a, witness, because, also=also, read=read.number)
