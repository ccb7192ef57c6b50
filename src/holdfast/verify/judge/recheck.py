"""Confirms a finding from the history alone, by none of the reasoning that found it.

The operations of the witness stay as they are. Every other operation of the session is
weakened until it can explain as much as possible: a read is left out, an acknowledged append
or forget need not have happened, or may have happened at any time after it began. Messages
that the finding is not about are left out too. If even then no order explains what the
witness saw, the witness proves the anomaly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import islice, pairwise
from typing import Final

from holdfast.verify.history import NEVER_NS, History, Operation, Session
from holdfast.verify.judge.case import (
    NS_PER_S,
    Append,
    appends_of,
    expiries,
    fault_between,
    may_be_trimmed,
)
from holdfast.verify.judge.exhaustive import STATES_MAX, Step, explainable
from holdfast.verify.judge.peaks import Peaks
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
        self._places: dict[tuple[int, bool], dict[str, list[int]]] = {}
        self._writers: dict[str, list[Append]] = {}
        self._forget_numbers = {o.number for o in session.forgets}
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

    def append_of(self, anomaly: Anomaly) -> int:
        """The append that wrote the message, or the one of the witness."""
        wrote = self._writers.get(anomaly.message)
        return wrote[0].number if wrote else anomaly.witness[0]

    def forget_of(self, anomaly: Anomaly) -> int:
        """The forget of the witness; -1 for one that the finding does not name."""
        forgets = self._forget_numbers.intersection(anomaly.witness)
        return min(forgets, default=-1)

    def fault_before(self, anomaly: Anomaly) -> int | None:
        """Which fault was the last one between the append and the end of the witness."""
        wrote = self._writers.get(anomaly.message)
        end_ns = max(self._history.operations[n].completed_ns for n in anomaly.witness)
        return fault_between(self._history.faults, wrote[0].inv, end_ns) if wrote else None

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
        widest = max((len(self._places_in(o, strict)) for o in reads), default=0)
        for kept in self._kept(witness, shown, about, widest):
            writers = {append.number: append for m in kept for append in self._writers.get(m, ())}
            steps = [_append_step(writers[number], witness, kept) for number in sorted(writers)]
            steps += [self._read_step(read, kept, strict) for read in reads]
            if not explainable([*steps, *self._telling(witness, steps)], given_up, states_max):
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
        reads = [o for o in witness if o.f == "history" and o.status == "ok"]
        times = [len(self._places_in(o, True).get(anomaly.message, ())) for o in reads]
        if anomaly.name in ("duplicate", "doubled"):
            return any(count > 1 for count in times)
        if anomaly.name in _SHOWN:
            return any(times)
        return anomaly.name not in _ABSENT or 0 in times

    def _places_in(self, read: Operation, strict: bool) -> dict[str, list[int]]:
        """Where each message stands in it: a long read is witness to as many findings."""
        places = self._places.get((read.number, strict))
        if places is None:
            places = self._places[read.number, strict] = {}
            for at, message in enumerate(self._shown(read, strict)):
                places.setdefault(message, []).append(at)
        return places

    def _read_step(self, read: Operation, kept: set[str], strict: bool) -> Step:
        cut = read.limit is not None and len(self._of(read)) >= read.limit
        cut = cut or self._is_trimmed(read)
        places = self._places_in(read, strict)
        there = sorted((at, message) for message in kept for at in places.get(message, ()))
        ids = tuple(message for _, message in there)
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
        self, witness: list[Operation], shown: dict[int, tuple[str, ...]], about: str, widest: int
    ) -> Iterator[set[str]]:
        """The messages that the finding is about: a few, and of a small case all of them.

        What no order of a few messages explains, none of more does: the few are tried first.
        """
        written = {m for o in witness if o.f == "append" for m in self._of(o)}
        ends = {m for ids in shown.values() if ids for m in (ids[0], ids[-1])}
        mates = {m for append in self._writers.get(about, ()) for m in append.ids}
        few = written | ends | mates | {about}
        if about and widest > _SMALL >= len(few):
            yield few
            return
        everything = written.union({about}, *shown.values())
        seen = {m for ids in shown.values() for m in ids}
        if len(few) > _SMALL and about in seen:
            # Of long batches one message each: an order of hundreds is too much to search.
            of = (self._of(o) for o in witness if o.f == "append")
            yield ends | {about} | {next((m for m in ids if m in seen), ids[-1]) for ids in of}
        if about and len(few) < len(everything):
            yield few
        if not about or len(few) >= len(everything) or len(everything) <= _SMALL:
            yield everything if len(few) < len(everything) else few

    @cached_property
    def _forgets(self) -> tuple[_Forgets, _Forgets]:
        """Whatever may have emptied the session: forgets, and the end of its time."""
        asked = [
            (o.number, Step("forget", o.invoked_ns, o.completed_ns, must=False))
            for o in self._session.forgets
            if o.status != "fail"
        ]
        header, ends = self._history.header, []
        if header.ttl_s is not None:
            life_ns = round((header.ttl_s - header.clock_error_s) * NS_PER_S)
            ends = [
                (-1, Step("forget", end.inv, end.comp, must=False, again=True))
                for end in expiries(self._appends, life_ns)
            ]
        return _Forgets(asked), _Forgets(ends)

    def _telling(self, witness: list[Operation], steps: list[Step]) -> Iterator[Step]:
        """The forgets without which fewer orders would be possible; those of the witness must be."""
        must = {o.number: o for o in witness if o.f == "forget" and o.status == "ok"}
        certain = [Step("forget", o.invoked_ns, o.completed_ns, True) for o in must.values()]
        yield from certain
        reads = [step for step in steps if step.kind == "read"]
        times = sorted(
            {t for step in (*steps, *certain) for t in (step.inv, step.comp, step.until)}
        )
        first = min((step.inv for step in steps if step.kind == "append"), default=NEVER_NS)
        last = max((read.comp for read in reads), default=-NEVER_NS)
        for forgets in self._forgets:
            yield from forgets.telling(times, first, last, len(reads), must)

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


class _Forgets:
    """Forgets in the order of their begin: a long session has thousands."""

    def __init__(self, forgets: list[tuple[int, Step]]) -> None:
        self._all = sorted(forgets, key=lambda forget: forget[1].inv)
        self._begins = [step.inv for _, step in self._all]
        self._ends = Peaks([step.comp for _, step in self._all])

    def telling(
        self, times: list[int], first: int, last: int, most: int, but: Collection[int]
    ) -> Iterator[Step]:
        """Those that can take what began at `first` from a read that ended at `last`.

        Those that stand alike to all these times are the same, and between two reads one is enough.
        """
        begin = 0
        for bound in (*times, NEVER_NS):
            end = bisect_right(self._begins, min(bound, last))
            short = (at for at in range(begin, end) if first <= self._all[at][1].comp < bound)
            long = self._ends.above(max(bound, first) - 1, end, begin)
            yield from islice(self._but(but, short if bound > first else ()), most)
            alike: Counter[int] = Counter()
            for step in self._but(but, long):
                place = bisect_right(times, step.comp)
                alike[place] += 1
                if alike[place] <= most:
                    yield step
            begin = end

    def _but(self, but: Collection[int], places: Iterable[int]) -> Iterator[Step]:
        return (self._all[at][1] for at in places if self._all[at][0] not in but)


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
