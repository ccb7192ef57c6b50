"""When each batch can have taken effect, and the order in which reads show the batches.

`earliest` and `latest` bound the instant of each append. A bound spreads along the order that
reads show: what stands later took effect later. Every bound remembers the operations that it
came from, because they are the witness of whatever it proves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.facts import Facts


@dataclass(frozen=True, slots=True)
class Bound:
    """A time, and the operations that prove it."""

    ns: int
    ops: tuple[int, ...]

    def through(self, read: Read) -> Bound:
        """The same bound for a neighbour, which this read shows to be one."""
        return Bound(self.ns, (*self.ops, read.number))


@dataclass(slots=True)
class Bounds:
    """Order and time of one session."""

    rows: dict[Read, list[Append]]
    shown_by: dict[Append, list[Read]]
    before: dict[Append, dict[Append, Read]] = field(default_factory=dict)
    after: dict[Append, dict[Append, Read]] = field(default_factory=dict)
    cycle: list[Append] = field(default_factory=list)
    earliest: dict[Append, Bound] = field(default_factory=dict)
    latest: dict[Append, Bound] = field(default_factory=dict)

    def read_earliest(self, read: Read) -> Bound:
        """The read took effect no earlier than this: when it began, or its last message did."""
        own = Bound(read.inv, ())
        row = self.rows[read]
        return max(own, self.earliest[row[-1]], key=_ns) if row else own


def _ns(bound: Bound) -> int:
    return bound.ns


def make_bounds(facts: Facts) -> Bounds:
    """The bounds of a case whose reads hold only what can be explained."""
    case = facts.case
    bounds = Bounds(facts.rows, facts.shown_by)
    for read, row in facts.rows.items():
        for first, second in pairwise(row):
            bounds.before.setdefault(second, {}).setdefault(first, read)
            bounds.after.setdefault(first, {}).setdefault(second, read)
    _uncut(case)
    for append in case.appends:
        bounds.earliest[append] = Bound(append.inv, (append.number,))
        bounds.latest[append] = _known(append, bounds.shown_by.get(append, []))
    order = _order(case, bounds)
    _spread_latest(bounds, order)
    if not case.forgets:
        _raise_all(case, bounds)
    _spread_earliest(bounds, order)
    return bounds


def _uncut(case: Case) -> None:
    """A window that begins where a read of everything does hides nothing either."""
    firsts = {r.ids[0]: r for r in reversed(case.reads) if r.ids and not r.cut}
    for read in case.reads:
        if read.cut and read.ids and read.ids[0] in firsts:
            read.cut = False
            read.whole_by = firsts[read.ids[0]].number


def _known(append: Append, reads: list[Read]) -> Bound:
    """By when it had certainly taken effect: its acknowledgement, or a read that shows it."""
    known = [Bound(append.ack, (append.ack_number,))]
    known += [Bound(read.comp, (read.number,)) for read in reads]
    if reads:
        # What a fault closed can have no later effect: shown at all, it happened before.
        known.append(Bound(append.comp, (append.ack_number, reads[0].number)))
    return min(known, key=_ns)


def _order(case: Case, bounds: Bounds) -> list[Append]:
    """The appends in an order that every read agrees with; none where reads disagree."""
    waits_for = {append: len(bounds.before.get(append, ())) for append in case.appends}
    order = [append for append, count in waits_for.items() if not count]
    for append in order:  # it grows while it is walked
        for follower in bounds.after.get(append, ()):
            waits_for[follower] -= 1
            if not waits_for[follower]:
                order.append(follower)
    if len(order) == len(case.appends):
        return order
    bounds.cycle = _cycle({append: None for append, count in waits_for.items() if count}, bounds)
    return []


def _cycle(stuck: dict[Append, None], bounds: Bounds) -> list[Append]:
    """A circle among appends that each wait for another: walk back until one comes again."""
    path: dict[Append, None] = {}
    here = next(iter(stuck))
    while here not in path:
        path[here] = None
        here = next(append for append in bounds.before[here] if append in stuck)
    walked = list(path)
    circle = [*walked[walked.index(here) :], here]
    return circle[::-1]


def _spread_latest(bounds: Bounds, order: list[Append]) -> None:
    for append in reversed(order):
        for neighbour, read in bounds.after.get(append, {}).items():
            later = bounds.latest[neighbour]
            if later.ns < bounds.latest[append].ns:
                bounds.latest[append] = later.through(read)


def _raise_all(case: Case, bounds: Bounds) -> None:
    """Nothing is ever forgotten: what a read of everything lacks took effect after it.

    A read that began when the message was known is another matter: there it is missing.
    """
    whole = sorted((r for r in case.reads if not r.cut), key=lambda r: r.inv, reverse=True)
    shown = {read: set(bounds.rows[read]) for read in whole}
    for append in case.appends:
        known_ns = bounds.latest[append].ns
        read = next((r for r in whole if r.inv <= known_ns and append not in shown[r]), None)
        if read is not None and read.inv > append.inv:
            bounds.earliest[append] = Bound(read.inv, (read.number,))


def _spread_earliest(bounds: Bounds, order: list[Append]) -> None:
    ends: dict[Append, list[Read]] = {}
    for read, row in bounds.rows.items():
        if row:
            ends.setdefault(row[-1], []).append(read)
    for append in order:
        for neighbour, read in bounds.before.get(append, {}).items():
            _raise(bounds, append, neighbour, read, ends.get(neighbour, []))


def _raise(bounds: Bounds, append: Append, neighbour: Append, link: Read, ends: list[Read]) -> None:
    """An append follows its neighbour, and every read that ends there without it."""
    lowest = bounds.earliest[neighbour]
    known_ns = bounds.latest[append].ns
    for read in ends:
        if lowest.ns < read.inv <= known_ns and append not in bounds.rows[read]:
            lowest = Bound(read.inv, (read.number,))
    if lowest.ns > bounds.earliest[append].ns:
        bounds.earliest[append] = lowest.through(link)
