"""Confirms a finding from the history alone, by none of the reasoning that found it.

The operations of the witness stay as they are. Every other operation of the session is
weakened until it can explain as much as possible: a read is left out, an acknowledged append
or forget need not have happened, or may have happened at any time after it began. Messages
that the finding is not about are left out too. If even then no order explains what the
witness saw, the witness proves the anomaly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from holdfast.verify.history import NEVER_NS, History, Operation, Session
from holdfast.verify.judge.case import NS_PER_S, Append, expiries, merged
from holdfast.verify.judge.exhaustive import Step, explainable
from holdfast.verify.judge.verdict import Anomaly

WITNESS_MIN: Final = 1
WITNESS_MAX: Final = 5
_SMALL: Final = 16
_SHOWN: Final = frozenset({"phantom", "leak", "resurrected", "expired-late"})
_ABSENT: Final = frozenset({"lost", "rollback", "stale", "hole", "expired-early"})
_ONE_READ: Final = frozenset({"duplicate", "phantom", "leak", "window"})


def confirmed(history: History, anomaly: Anomaly) -> bool:
    """Whether the operations of the witness prove the anomaly."""
    session = history.sessions.get(anomaly.session)
    if session is None or not WITNESS_MIN <= len(anomaly.witness) <= WITNESS_MAX:
        return False
    witness = [history.operations[n] for n in anomaly.witness if n in history.operations]
    if len(witness) < len(anomaly.witness) or not _looks_like_it(anomaly, witness):
        return False
    if anomaly.name == "seq-clash":
        return _numbers_clash(session, witness)
    if anomaly.name == "expired-late":
        return _shown_too_late(history, session, witness, anomaly.message)
    return impossible(history, session, witness, anomaly.message, anomaly.name in _ONE_READ)


def _looks_like_it(anomaly: Anomaly, witness: list[Operation]) -> bool:
    """Whether a read of the witness shows the message, or lacks it, as the name says."""
    rows = [o.ids() for o in witness if o.f == "history" and o.status == "ok"]
    times = [row.count(anomaly.message) for row in rows]
    if anomaly.name == "duplicate":
        return any(count > 1 for count in times)
    if anomaly.name in _SHOWN:
        return any(times)
    return anomaly.name not in _ABSENT or 0 in times


def impossible(
    history: History, session: Session, witness: list[Operation], about: str, strict: bool = False
) -> bool:
    """Whether no legal execution of the session explains these operations.

    Unless it is `strict`, a read is not blamed for what it can never have seen, so that an
    unrelated fault in the same read confirms nothing.
    """
    reads = [o for o in witness if (o.f, o.status, o.session) == ("history", "ok", session.name)]
    if strict and any(o.limit is not None and len(o.ids()) > o.limit for o in reads):
        return True
    appends = _appends_all(session)
    shown = {o.number: _shown(o, appends, strict) for o in reads}
    kept = _kept(session, witness, shown, about)
    return not explainable(
        [
            _append_step(append, witness, kept)
            for append in appends
            if not kept.isdisjoint(append.ids)
        ]
        + [_read_step(read, shown[read.number], kept) for read in reads]
        + _forget_steps(history, appends, session, witness)
    )


def _shown(read: Operation, appends: list[Append], strict: bool) -> tuple[str, ...]:
    if strict:
        return tuple(read.ids())
    written = {m for append in appends if append.inv <= read.completed_ns for m in append.ids}
    return tuple(dict.fromkeys(m for m in read.ids() if m in written))


def _kept(
    session: Session, witness: list[Operation], shown: dict[int, tuple[str, ...]], about: str
) -> set[str]:
    """The messages that the finding is about: all of a small case, a few of a large one."""
    written = {m for o in witness if o.f == "append" for m in o.ids()}
    everything = written.union({about}, *shown.values())
    if len(everything) <= _SMALL:
        return everything
    ends = {m for ids in shown.values() if ids for m in (ids[0], ids[-1])}
    mates = {m for o in session.appends if about in (ids := o.ids()) for m in ids}
    return written | ends | mates | {about}


def _append_step(append: Append, witness: list[Operation], kept: set[str]) -> Step:
    """An append of kept messages; an acknowledgement outside the witness is not believed."""
    ids = tuple(message for message in append.ids if message in kept)
    if append.acked and append.ack_number not in {o.number for o in witness}:
        return Step("append", append.inv, NEVER_NS, must=False, ids=ids)
    return Step("append", append.inv, append.comp, append.acked, ids)


def _read_step(read: Operation, shown: tuple[str, ...], kept: set[str]) -> Step:
    cut = read.limit is not None and len(read.ids()) >= read.limit
    ids = tuple(message for message in shown if message in kept)
    return Step("read", read.invoked_ns, read.completed_ns, must=True, ids=ids, cut=cut)


def _forget_steps(
    history: History, appends: list[Append], session: Session, witness: list[Operation]
) -> list[Step]:
    """Every forget that may have happened; only those of the witness must have."""
    numbers = {o.number for o in witness}
    steps = [
        Step("forget", o.invoked_ns, o.completed_ns, o.status == "ok" and o.number in numbers)
        for o in session.forgets
        if o.status != "fail"
    ]
    ttl_s = history.header.ttl_s
    if ttl_s is not None:
        life_ns = round((ttl_s - history.header.clock_error_s) * NS_PER_S)
        ends = expiries(appends, life_ns)
        steps += [Step("forget", end.inv, end.comp, must=False, again=True) for end in ends]
    return steps


def _appends_all(session: Session) -> list[Append]:
    attempts: dict[tuple[str, ...], list[Operation]] = {}
    for operation in session.appends:
        if operation.status != "fail" and (ids := tuple(operation.ids())):
            attempts.setdefault(ids, []).append(operation)
    return [merged(ids, tries) for ids, tries in attempts.items()]


def _numbers_clash(session: Session, witness: list[Operation]) -> bool:
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
    return _order_contradicts(session, witness, number_of)


def _order_contradicts(
    session: Session, witness: list[Operation], number_of: dict[str, int]
) -> bool:
    for operation in witness:
        numbers = [number_of[m] for m in operation.ids() if m in number_of]
        if numbers != sorted(numbers):
            return True
    appends = [
        (append, number_of[append.ids[0]])
        for append in _appends_all(session)
        if append.ids[0] in number_of and append.ack_number in {o.number for o in witness}
    ]
    return any(a.ack < b.inv and low > high for a, low in appends for b, high in appends)


def _shown_too_late(
    history: History, session: Session, witness: list[Operation], about: str
) -> bool:
    """Whether every write that could have kept the message alive was too long before.

    `alive` is the latest time until which it can have lived. A write that may have happened
    while it still lived makes it live longer; one that began later cannot bring it back.
    """
    reads = [o for o in witness if o.f == "history" and about in o.ids()]
    ttl_s = history.header.ttl_s
    appends = _appends_all(session)
    first = [a for a in appends if about in a.ids]
    if not reads or ttl_s is None or not first:
        return False
    life_ns = round((ttl_s + history.header.clock_error_s) * NS_PER_S)
    alive = first[0].comp + life_ns
    for inv, comp in sorted(attempt for append in appends for attempt in append.tries):
        if inv <= alive:
            alive = max(alive, comp + life_ns)
    return any(_begins_after(session, read, alive) for read in reads)


def _begins_after(session: Session, read: Operation, alive: int) -> bool:
    shown = set(read.ids())
    begun = [a.invoked_ns for a in session.appends if not shown.isdisjoint(a.ids())]
    return max(read.invoked_ns, *begun) > alive
