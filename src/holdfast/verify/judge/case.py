"""One session, made ready to be judged: attempts merged, ids decoded, expiries as forgets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Final

from holdfast.verify.history import NEVER_NS, Fault, Header, History, Operation, Session

NS_PER_S: Final = 1_000_000_000


@dataclass(slots=True, eq=False)
class Append:
    """A batch, whichever of its attempts wrote it: once, between `inv` and `comp`."""

    ids: tuple[str, ...]
    inv: int
    comp: int
    acked: bool
    number: int
    ack_number: int
    process: int | str | None
    tries: tuple[tuple[int, int], ...]
    """Begin and end of every attempt: each may have refreshed the session."""

    @property
    def ack(self) -> int:
        """When its writer knew; never for one that nobody acknowledged."""
        return self.comp if self.acked else NEVER_NS

    def retried_after(self, time_ns: int) -> bool:
        """Whether another attempt may have written it once more after that time."""
        return len(self.tries) > 1 and any(end >= time_ns for _, end in self.tries)


@dataclass(slots=True, eq=False)
class Read:
    """What one read returned. `cut` means that older messages may stand before the first.

    Or may have stood there: a store that keeps the newest only cuts off whole appends.
    """

    number: int
    inv: int
    comp: int
    ids: tuple[str, ...]
    limit: int | None
    cut: bool
    process: int | str | None
    whole_by: int | None = None
    """The other read that proves that nothing stood before the first, where the limit hid it."""
    back: frozenset[str] = frozenset()
    """What it shows besides `ids` although a forget took it away: it can stand anywhere."""
    shown: int = 0
    """How many it showed in all: besides `ids` what came back, stands there twice or nothing explains."""
    trimmed: bool = False
    """It is `cut` by what the store keeps, not by its limit."""


@dataclass(slots=True, eq=False)
class Forget:
    """What may have emptied the session: a forget, or (number None) the end of its time."""

    number: int | None
    inv: int
    comp: int
    certain: bool


class Spans:
    """Whether one of these forgets may have taken effect between two times."""

    def __init__(self, unordered: Iterable[Forget]) -> None:
        forgets = sorted(unordered, key=lambda forget: forget.inv)
        self._invs = [forget.inv for forget in forgets]
        self._comps = list(accumulate((forget.comp for forget in forgets), max))

    def meet(self, low_ns: int, high_ns: int) -> bool:
        """Whether one may have, after `low_ns` and by `high_ns`."""
        return low_ns <= self.until(high_ns)

    def until(self, high_ns: int) -> int:
        """The latest time from which on one may have taken effect by `high_ns`."""
        at = bisect_right(self._invs, high_ns)
        return min(high_ns, self._comps[at - 1]) if at else -NEVER_NS


@dataclass
class Case:
    """Everything that can decide about one session."""

    name: str
    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    forgets: list[Forget] = field(default_factory=list)
    writer: dict[str, Append] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    ttl_ns: int | None = None
    error_ns: int = 0
    trims: bool = False
    """Whether the store keeps the newest only."""
    faults: list[Fault] = field(default_factory=list)
    began_ns: Callable[[int | str | None], int] = lambda _: -1
    """When a process did its first operation, in any session."""

    @cached_property
    def acked(self) -> list[Append]:
        """What was acknowledged, in the order of that."""
        return sorted((a for a in self.appends if a.acked), key=lambda append: append.comp)

    @cached_property
    def spans(self) -> Spans:
        """When forgets may have taken effect."""
        return Spans(self.forgets)

    def may_be_forgotten(self, append: Append, read: Read) -> bool:
        """Whether a forget may have met a part of the batch before the read ended."""
        return self.spans.meet(append.inv, read.comp)


def fault_between(faults: list[Fault], low_ns: int, high_ns: int) -> int | None:
    """Which fault was the last one between two times, if any was."""
    at = bisect_right(faults, high_ns, key=lambda fault: fault.time_ns) - 1
    return at if at >= 0 and faults[at].time_ns >= low_ns else None


def _began_ns(history: History, process: int | str | None) -> int:
    """When a process did its first operation; looked up once for all sessions."""
    first_ns = history.began_ns
    if not first_ns:
        for one in history.operations.values():
            first_ns[one.process] = min(one.invoked_ns, first_ns.get(one.process, one.invoked_ns))
    return first_ns[process]


def make_case(history: History, session: Session) -> Case:
    """The session as a case; failed reads and forgets, which prove nothing, left out."""
    header = history.header
    case = Case(session.name, faults=history.faults, began_ns=partial(_began_ns, history))
    for operation in session.appends:
        if operation.status == "fail":
            case.failed.update(dict.fromkeys(operation.ids(), operation.number))
    case.trims = header.kept_last is not None or header.kept_age_s is not None
    case.appends = appends_of(session)
    case.writer = {message: append for append in case.appends for message in append.ids}
    case.reads = [_read(operation) for operation in session.reads if operation.status == "ok"]
    _note_cuts(case, header)
    case.forgets = [
        Forget(o.number, o.invoked_ns, o.completed_ns, o.status == "ok")
        for o in session.forgets
        if o.status != "fail"
    ]
    if header.ttl_s is not None:
        case.ttl_ns = round(header.ttl_s * NS_PER_S)
        case.error_ns = round(header.clock_error_s * NS_PER_S)
        case.forgets += expiries(case.appends, case.ttl_ns - case.error_ns)
    return case


def _read(operation: Operation) -> Read:
    read = Read(
        operation.number,
        operation.invoked_ns,
        operation.completed_ns,
        tuple(operation.ids()),
        operation.limit,
        cut=False,
        process=operation.process,
    )
    read.shown = len(read.ids)
    read.cut = read.limit is not None and len(read.ids) >= read.limit
    return read


def _note_cuts(case: Case, header: Header) -> None:
    began_ns = min((append.inv for append in case.appends), default=0)
    for read in case.reads:
        if not read.cut and may_be_trimmed(len(read.ids), read.comp - began_ns, header):
            read.cut = read.trimmed = True


def may_be_trimmed(shown: int, lasted_ns: int, header: Header) -> bool:
    """Where a store keeps the newest only, a read that shows as many as it keeps may lack older ones.

    One that shows fewer lacks nothing, unless messages may be too old by then.
    """
    age_s = header.kept_age_s
    if age_s is not None and shown and lasted_ns / NS_PER_S + header.clock_error_s >= age_s:
        return True
    return header.kept_last is not None and shown >= header.kept_last


def appends_of(session: Session) -> list[Append]:
    """What may have been written, each batch once, whichever of its attempts wrote it."""
    return [_merged(ids, tries) for ids, tries in attempts_of(session).items()]


def attempts_of(session: Session) -> dict[tuple[str, ...], list[Operation]]:
    """The attempts that may have written each batch."""
    attempts: dict[tuple[str, ...], list[Operation]] = {}
    for operation in session.appends:
        if operation.status != "fail" and (ids := tuple(operation.ids())):
            attempts.setdefault(ids, []).append(operation)
    return attempts


def _merged(ids: tuple[str, ...], attempts: list[Operation]) -> Append:
    """One append from its attempts: it took effect once, by the first acknowledgement."""
    first = min(attempts, key=lambda o: o.invoked_ns)
    acks = [o for o in attempts if o.status == "ok"]
    last = min(acks, key=lambda o: o.completed_ns) if acks else None
    comp = max(o.completed_ns for o in attempts) if last is None else last.completed_ns
    return Append(
        ids,
        first.invoked_ns,
        comp,
        acked=last is not None,
        number=first.number,
        ack_number=first.number if last is None else last.number,
        process=(last or first).process,
        tries=tuple((o.invoked_ns, o.completed_ns) for o in attempts),
    )


def expiries(appends: Collection[Append], life_ns: int) -> list[Forget]:
    """Where the session may have expired: whenever no acknowledged write had just refreshed it.

    An expiry is a forget that nobody asked for. Writes that nobody acknowledged could only
    make the session live longer, so leaving them out excuses more, never less.
    """
    if not appends:
        return []
    found: list[Forget] = []
    free_from = min(append.inv for append in appends) + life_ns
    for append in sorted((a for a in appends if a.acked), key=lambda a: a.comp):
        if append.comp >= free_from:
            found.append(Forget(None, free_from, append.comp, certain=False))
        free_from = max(free_from, append.inv + life_ns)
    found.append(Forget(None, free_from, NEVER_NS, certain=False))
    return found


def split(case: Case) -> Case:
    """The case with batches taken apart: each message takes effect by itself.

    A message that no read shows, of a batch of which reads show others, never did.
    """
    shown = {message for read in case.reads for message in read.ids}
    apart: list[Append] = []
    for append in case.appends:
        there = [m for m in append.ids if m in shown] or append.ids[-1:]
        apart += [replace(append, ids=(message,)) for message in there]
    writer = {append.ids[0]: append for append in apart}
    return replace(case, appends=apart, writer=writer)
