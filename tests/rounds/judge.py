"""What a round must have left behind; a pure function of what its calls returned.

Times are ticks of one counter, taken before a call and after it: of two calls that do not overlap
it says which was first, whatever thread or task made them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.rounds.plan import Operation

DONE: Final = "done"
NOT_DONE: Final = "not done"
UNKNOWN: Final = "unknown"

Rows = Sequence[tuple[int, str]]


@dataclass(slots=True)
class Record:
    """One call and how it ended. `rows` is what a history held: number and text of each message."""

    operation: Operation
    began: int
    ended: int
    outcome: str
    first: int = 0
    last: int = 0
    repeated: bool = False
    rows: Rows = ()

    @property
    def writes(self) -> bool:
        """Whether it adds messages."""
        return self.operation.kind in {"append", "rewrite"}

    @property
    def is_ack(self) -> bool:
        """Whether it says: these messages have these numbers."""
        return self.writes and self.outcome == DONE


def problems(records: Sequence[Record]) -> list[str]:
    """Everything about one session that breaks a promise; the last read is the final history."""
    acks = [record for record in records if record.is_ack]
    reads = [r for r in records if r.operation.kind == "history" and r.outcome == DONE]
    found = [*_numbers(acks), *_order(acks)]
    for read in reads:
        found += _shape(read, records)
        found += _presence(read, records)
    return found


def _numbers(acks: Sequence[Record]) -> Iterator[str]:
    """Each message has a number of its own; a key has one ack; `expect` holds."""
    owner: dict[int, Record] = {}
    for ack in acks:
        texts, expect = ack.operation.texts, ack.operation.expect
        if ack.last - ack.first + 1 != len(texts):
            yield f"{len(texts)} messages got the numbers {ack.first} to {ack.last}: {ack}"
        if expect and ack.first != expect + 1:
            yield f"expected the end at {expect}, and was written at {ack.first}: {ack}"
        for number in range(ack.first, ack.last + 1):
            other = owner.setdefault(number, ack)
            if other.operation.texts != texts:
                yield f"number {number} was given twice: {other} and {ack}"
    for one, two in itertools.combinations(acks, 2):
        same = one.operation.key is not None and one.operation.key == two.operation.key
        if same and (one.first, one.last) != (two.first, two.last):
            yield f"one key, two acks: {one} and {two}"
        if same and not one.repeated and not two.repeated:
            yield f"one key was written twice: {one} and {two}"


def _order(acks: Sequence[Record]) -> Iterator[str]:
    fresh = [ack for ack in acks if not ack.repeated]
    for early, late in itertools.permutations(fresh, 2):
        if early.ended < late.began and early.last >= late.first:
            yield f"acknowledged before, and stands after: {early} and {late}"


def _shape(read: Record, records: Sequence[Record]) -> Iterator[str]:
    """A history holds whole batches in order, each once, and nothing that was never written."""
    numbers = [number for number, _ in read.rows]
    texts = [text for _, text in read.rows]
    if numbers != sorted(set(numbers)):
        yield f"numbers are not ascending: {read.rows}"
    if len(set(texts)) != len(texts):
        yield f"doubled: {read.rows}"
    possible = {
        text
        for record in records
        if record.writes and record.outcome != NOT_DONE and record.began < read.ended
        for text in record.operation.texts
    }
    if not possible.issuperset(texts):
        yield f"read what nobody wrote, or what failed: {set(texts) - possible} in {read}"
    for record in records:
        own = record.operation.texts
        if not record.writes or not set(own) & set(texts):
            continue
        at = texts.index(own[0]) if own[0] in texts else -1
        if at < 0 or tuple(texts[at : at + len(own)]) != own:
            yield f"a batch is seen in part: {record} in {read.rows}"
        elif record.is_ack and numbers[at] != record.first:
            yield f"the ack said number {record.first}, the history {numbers[at]}: {record}"
        elif record.operation.kind == "rewrite" and at != 0:
            yield f"something is left before what replaced it: {record} in {read.rows}"


def _presence(read: Record, records: Sequence[Record]) -> Iterator[str]:
    """What was acknowledged before the read is in it, unless something has erased it."""
    here = {text for _, text in read.rows}
    erasers = [r for r in records if r.operation.kind in {"rewrite", "forget"}]
    for ack in records:
        if not ack.is_ack or ack.ended > read.began:
            continue
        is_here = ack.operation.texts[0] in here
        if not is_here and not any(_may_erase(e, ack, read) for e in erasers):
            yield f"acknowledged, and missing: {ack} in {read.rows}"
        if is_here and any(_must_erase(e, ack, read) for e in erasers):
            yield f"erased, and still there: {ack} in {read.rows}"


def _may_erase(eraser: Record, ack: Record, read: Record) -> bool:
    if eraser is ack or eraser.outcome == NOT_DONE or eraser.began > read.ended:
        return False
    if eraser.is_ack:
        return eraser.first > ack.last
    # The first write of a repeated key was earlier than this call: nobody knows when.
    return ack.repeated or eraser.ended > ack.began


def _must_erase(eraser: Record, ack: Record, read: Record) -> bool:
    if eraser is ack or eraser.outcome != DONE or eraser.ended > read.began:
        return False
    if eraser.is_ack:
        return eraser.first > ack.last
    return eraser.began > ack.ended
