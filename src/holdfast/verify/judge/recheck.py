"""Confirms a finding from the history alone, by none of the reasoning that found it.

The operations of the witness stay as they are. Every other operation of the session is
weakened until it can explain as much as possible: a read is left out, an acknowledged append
or forget need not have happened, or may have happened at any time after it began. Messages
that the finding is not about are left out too. If even then no order explains what the
witness saw, the witness proves the anomaly.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Final

from holdfast.verify.history import NEVER_NS, History, Operation, Session
from holdfast.verify.judge.case import (
    NS_PER_S,
    Append,
    appends_of,
    expiries,
    may_be_trimmed,
)
from holdfast.verify.judge.exhaustive import STATES_MAX, Step, explainable
from holdfast.verify.judge.verdict import Anomaly

WITNESS_MIN: Final = 1
WITNESS_MAX: Final = 5
_SMALL: Final = 16
_SHOWN: Final = frozenset({"phantom", "leak", "resurrected", "expired-late"})
_ABSENT: Final = frozenset({"lost", "rollback", "stale", "hole", "expired-early"})
_ONE_READ: Final = frozenset({"duplicate", "doubled", "phantom", "leak", "window"})


def confirmed(history: History, anomaly: Anomaly, given_up: frozenset[str] = frozenset()) -> bool:
    """Whether the operations of the witness prove the anomaly, these promises given up."""
    session = history.sessions.get(anomaly.session)
    return session is not None and Recheck(history, session).confirms(anomaly, given_up)


class Recheck:
    """One session, made ready once for all of its findings."""

    def __init__(self, history: History, session: Session) -> None:
        self._history = history
        self._session = session
        self._appends = appends_of(session)
        self._began_ns = min((o.invoked_ns for o in session.appends), default=0)
        self._ids: dict[int, tuple[str, ...]] = {}
        self._possible: dict[int, tuple[str, ...]] = {}
        self._writers: dict[str, list[Append]] = {}
        for append in self._appends:
            for message in append.ids:
                self._writers.setdefault(message, []).append(append)

    def confirms(self, anomaly: Anomaly, given_up: frozenset[str] = frozenset()) -> bool:
        """Whether the witness proves the anomaly, these promises given up."""
        operations = self._history.operations
        if not WITNESS_MIN <= len(anomaly.witness) <= WITNESS_MAX:
            return False
        witness = [operations[n] for n in anomaly.witness if n in operations]
        if len(witness) < len(anomaly.witness) or not self._looks_like_it(anomaly, witness):
            return False
        if anomaly.name == "seq-clash":
            return _numbers_clash(self._appends, witness)
        if anomaly.name == "expired-late":
            return self._shown_too_late(witness, anomaly.message)
        strict = anomaly.name in _ONE_READ
        return self.impossible(
            witness,
            anomaly.message,
            strict=strict,
            given_up=given_up,
            states_max=STATES_MAX // 50 if given_up else STATES_MAX,
        )

    def impossible(
        self,
        witness: list[Operation],
        about: str,
        *,
        strict: bool = False,
        given_up: frozenset[str] = frozenset(),
        states_max: int = STATES_MAX,
    ) -> bool:
        """Whether no legal execution of the session explains these operations.

        Unless it is `strict`, a read is not blamed for what it can never have seen, so that an
        unrelated fault in the same read confirms nothing.
        """
        name = self._session.name
        reads = [o for o in witness if (o.f, o.status, o.session) == ("history", "ok", name)]
        if strict and any(o.limit is not None and len(self._of(o)) > o.limit for o in reads):
            return True
        shown = {o.number: self._shown(o, strict) for o in reads}
        forgets = self._forget_steps(witness)
        for kept in self._kept(witness, shown, about):
            writers = {append.number: append for m in kept for append in self._writers.get(m, ())}
            steps = [_append_step(writers[number], witness, kept) for number in sorted(writers)]
            steps += [self._read_step(read, shown[read.number], kept) for read in reads]
            if not explainable([*steps, *_telling(forgets, steps)], given_up, states_max):
                return True
        return False

    def _of(self, operation: Operation) -> tuple[str, ...]:
        """Its ids, decoded once: one operation is witness to many findings."""
        ids = self._ids.get(operation.number)
        if ids is None:
            ids = self._ids[operation.number] = tuple(operation.ids())
        return ids

    def _looks_like_it(self, anomaly: Anomaly, witness: list[Operation]) -> bool:
        """Whether a read of the witness shows the message, or lacks it, as the name says."""
        rows = [self._of(o) for o in witness if o.f == "history" and o.status == "ok"]
        times = [row.count(anomaly.message) for row in rows]
        if anomaly.name in ("duplicate", "doubled"):
            return any(count > 1 for count in times)
        if anomaly.name in _SHOWN:
            return any(times)
        return anomaly.name not in _ABSENT or 0 in times

    def _read_step(self, read: Operation, shown: tuple[str, ...], kept: set[str]) -> Step:
        cut = read.limit is not None and len(self._of(read)) >= read.limit
        cut = cut or self._is_trimmed(read)
        ids = tuple(message for message in shown if message in kept)
        return Step("read", read.invoked_ns, read.completed_ns, must=True, ids=ids, cut=cut)

    def _is_trimmed(self, read: Operation) -> bool:
        """Whether the store may have cut off what stood before it: whole appends, as it says."""
        ids = self._of(read)
        if not may_be_trimmed(len(ids), read.completed_ns - self._began_ns, self._history.header):
            return False
        return any(append.ids[0] == ids[0] for append in self._writers.get(ids[0], ()))

    def _shown(self, read: Operation, strict: bool) -> tuple[str, ...]:
        ids = self._of(read)
        if strict:
            return ids
        possible = self._possible.get(read.number)
        if possible is None:
            end, writers = read.completed_ns, self._writers
            possible = self._possible[read.number] = tuple(
                m for m in dict.fromkeys(ids) if any(a.inv <= end for a in writers.get(m, ()))
            )
        return possible

    def _kept(
        self, witness: list[Operation], shown: dict[int, tuple[str, ...]], about: str
    ) -> Iterator[set[str]]:
        """The messages that the finding is about: a few, and of a small case all of them.

        What no order of a few messages explains, none of more does: the few are tried first.
        """
        written = {m for o in witness if o.f == "append" for m in self._of(o)}
        everything = written.union({about}, *shown.values())
        ends = {m for ids in shown.values() if ids for m in (ids[0], ids[-1])}
        mates = {m for append in self._writers.get(about, ()) for m in append.ids}
        few = written | ends | mates | {about}
        seen = {m for ids in shown.values() for m in ids}
        if len(few) > _SMALL and about in seen:
            # Of long batches one message each: an order of hundreds is too much to search.
            of = (self._of(o) for o in witness if o.f == "append")
            yield ends | {about} | {next((m for m in ids if m in seen), ids[-1]) for ids in of}
        if about and len(few) < len(everything):
            yield few
        if not about or len(few) >= len(everything) or len(everything) <= _SMALL:
            yield everything if len(few) < len(everything) else few

    def _forget_steps(self, witness: list[Operation]) -> list[Step]:
        """Every forget that may have happened; only those of the witness must have."""
        must = {o.number for o in witness if o.f == "forget" and o.status == "ok"}
        return [
            replace(step, must=True) if number in must else step for number, step in self._forgets
        ]

    @cached_property
    def _forgets(self) -> list[tuple[int | None, Step]]:
        """Whatever may have emptied the session, with its number if it is an operation."""
        steps: list[tuple[int | None, Step]] = [
            (o.number, Step("forget", o.invoked_ns, o.completed_ns, must=False))
            for o in self._session.forgets
            if o.status != "fail"
        ]
        header = self._history.header
        if header.ttl_s is not None:
            life_ns = round((header.ttl_s - header.clock_error_s) * NS_PER_S)
            steps += [
                (None, Step("forget", end.inv, end.comp, must=False, again=True))
                for end in expiries(self._appends, life_ns)
            ]
        return steps

    def _shown_too_late(self, witness: list[Operation], about: str) -> bool:
        """Whether every write that could have kept the message alive was too long before.

        `alive` is the latest time until which it can have lived. A write that may have happened
        while it still lived makes it live longer; one that began later cannot bring it back.
        """
        reads = [o for o in witness if o.f == "history" and about in o.ids()]
        header = self._history.header
        first = [a for a in self._appends if about in a.ids]
        if not reads or header.ttl_s is None or not first:
            return False
        life_ns = round((header.ttl_s + header.clock_error_s) * NS_PER_S)
        alive = first[0].comp + life_ns
        for inv, comp in sorted(attempt for append in self._appends for attempt in append.tries):
            if inv <= alive:
                alive = max(alive, comp + life_ns)
        return any(_begins_after(self._session, read, alive) for read in reads)


def _telling(forgets: list[Step], steps: list[Step]) -> Iterator[Step]:
    """The forgets without which fewer orders would be possible: a long session has thousands.

    Those that stand alike to everything else are the same, and between two reads one is enough.
    """
    reads = [step for step in steps if step.kind == "read"]
    must = [forget for forget in forgets if forget.must]
    times = sorted({t for step in (*steps, *must) for t in (step.inv, step.comp, step.until)})
    first = min((step.inv for step in steps if step.kind == "append"), default=NEVER_NS)
    last = max((read.comp for read in reads), default=-NEVER_NS)
    alike: Counter[tuple[int, int, bool]] = Counter()
    for forget in forgets:
        if not forget.must:
            if forget.comp < first or forget.inv > last:
                continue  # it takes nothing, or nobody looks
            place = (bisect_left(times, forget.inv), bisect_right(times, forget.comp), forget.again)
            alike[place] += 1
            if alike[place] > len(reads):
                continue
        yield forget


def _append_step(append: Append, witness: list[Operation], kept: set[str]) -> Step:
    """An append of kept messages; an acknowledgement outside the witness is not believed."""
    ids = tuple(message for message in append.ids if message in kept)
    until = max(end for _, end in append.tries) if len(append.tries) > 1 else -1
    if append.acked and append.ack_number not in {o.number for o in witness}:
        return Step("append", append.inv, NEVER_NS, must=False, ids=ids, until=until)
    return Step("append", append.inv, append.comp, append.acked, ids, until=until)


def _numbers_clash(all_: list[Append], witness: list[Operation]) -> bool:
    """Whether the numbers differ for a message, repeat, or stand in another order than it."""
    pairs: list[tuple[str, int]] = []
    for operation in witness:
        if operation.seqs is not None:
            numbered = list(zip(operation.ids(), operation.seqs, strict=True))
            if any(a[1] >= b[1] for a, b in pairwise(numbered)):
                return True
            pairs += numbered
    number_of = dict(pairs)
    if any(number_of[m] != n for m, n in pairs) or len({*number_of.values()}) < len(number_of):
        return True
    return _order_contradicts(all_, witness, number_of)


def _order_contradicts(
    all_: list[Append], witness: list[Operation], number_of: dict[str, int]
) -> bool:
    for operation in witness:
        numbers = [number_of[m] for m in operation.ids() if m in number_of]
        if numbers != sorted(numbers):
            return True
    appends = [
        (append, number_of[append.ids[0]])
        for append in all_
        if append.ids[0] in number_of and append.ack_number in {o.number for o in witness}
    ]
    return any(a.ack < b.inv and low > high for a, low in appends for b, high in appends)


def _begins_after(session: Session, read: Operation, alive: int) -> bool:
    shown = set(read.ids())
    begun = [a.invoked_ns for a in session.appends if not shown.isdisjoint(a.ids())]
    return max(read.invoked_ns, *begun) > alive
