"""Whether the numbers that the store gave are one order, the same as everything else: seq-clash."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.verify.history import Operation, Session
from holdfast.verify.judge.case import Append, appends_of, attempts_of
from holdfast.verify.judge.findings import Findings

_ALSO = frozenset({"durable", "forgotten", "exactly-once"})
"""What was lost or forgotten leaves its number to others; what took effect twice has two."""


def check_numbers(session: Session, found: Findings) -> None:
    """Report numbers that repeat, differ for one message, or contradict reads or time."""
    given = _Given()
    for operation in _completed(session):
        if operation.seqs is not None:
            for message, number in zip(operation.ids(), operation.seqs, strict=True):
                _check_one(given, operation, message, number, found)
    for read in session.reads:
        if read.status == "ok" and given.to:
            _check_read(read, given, found)
    _check_time(session, found)


@dataclass(slots=True)
class _Given:
    """Which number was given to which message, and the first operation that says so."""

    to: dict[str, tuple[int, Operation]] = field(default_factory=dict)
    holder: dict[int, tuple[str, Operation]] = field(default_factory=dict)


def _completed(session: Session) -> list[Operation]:
    both = [*session.appends, *session.reads]
    return sorted((o for o in both if o.status == "ok"), key=lambda o: o.completed_ns)


def _check_one(
    given: _Given, operation: Operation, message: str, number: int, found: Findings
) -> None:
    known, first = given.to.setdefault(message, (number, operation))
    if known != number:
        because = (
            f"{message!r} has number {known} in operation {first.number} and "
            f"{number} in operation {operation.number}"
        )
        found.add("seq-clash", message, (first.number, operation.number), because, also=_ALSO)
    owner, before = given.holder.setdefault(number, (message, operation))
    if owner != message:
        because = f"number {number} was given to {owner!r} and to {message!r}"
        found.add("seq-clash", message, (before.number, operation.number), because, also=_ALSO)


def _check_read(read: Operation, given: _Given, found: Findings) -> None:
    known = [(m, *given.to[m]) for m in dict.fromkeys(read.ids()) if m in given.to]
    for (a, low, by), (b, high, other) in pairwise(known):
        if low > high:
            because = f"read {read.number} shows {a!r}, number {low}, before {b!r}, number {high}"
            found.add("seq-clash", a, (by.number, other.number, read.number), because, also=_ALSO)


def _check_time(session: Session, found: Findings) -> None:
    """What was acknowledged before another append began has the smaller number.

    A retry rightly gets the numbers of its first attempt, so attempts count as one append.
    """
    given = list(_numbered(session))
    acked = sorted(given, key=lambda pair: pair[0].comp)
    highest: tuple[int, Append] | None = None
    at = 0
    for append, numbers in sorted(given, key=lambda pair: pair[0].inv):
        while acked[at][0].comp < append.inv:
            before, last = acked[at][0], acked[at][1][-1]
            if highest is None or last > highest[0]:
                highest = last, before
            at += 1
        if highest is not None and numbers[0] < highest[0]:
            because = (
                f"append {highest[1].ack_number} was acknowledged with number {highest[0]} before "
                f"append {append.number} began, which got the smaller number {numbers[0]}"
            )
            witness = (highest[1].ack_number, append.number, append.ack_number)
            found.add("seq-clash", append.ids[0], witness, because, also=_ALSO)


def _numbered(session: Session) -> Iterator[tuple[Append, list[int]]]:
    attempts = attempts_of(session)
    for append in appends_of(session):
        seqs = next((o.seqs for o in attempts[append.ids] if o.seqs), None)
        if seqs and append.acked:
            yield append, seqs
