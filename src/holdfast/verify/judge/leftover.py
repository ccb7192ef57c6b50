"""Small sessions in which no rule found anything: every order is tried, so nothing is missed."""

from __future__ import annotations

from typing import Final

from holdfast.verify.history import Operation, Session
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.recheck import WITNESS_MAX, Recheck

OPERATIONS_MAX: Final = 12
MESSAGES_MAX: Final = 16


def is_small(session: Session) -> bool:
    """Whether the session is small enough for every order to be tried."""
    operations = operations_of(session)
    messages = {m for o in operations if o.messages for m in o.ids()}
    return len(operations) <= OPERATIONS_MAX and len(messages) <= MESSAGES_MAX


def operations_of(session: Session) -> list[Operation]:
    """Everything that may have taken effect."""
    every = (*session.appends, *session.reads, *session.forgets)
    return [operation for operation in every if operation.status != "fail"]


def check_leftover(recheck: Recheck, session: Session, found: Findings) -> None:
    """Report a small session that no legal execution explains, with the fewest operations."""
    operations = operations_of(session)
    if recheck.impossible(operations, ""):
        core = _shrink(recheck, operations)
        if len(core) <= WITNESS_MAX:
            _report(session, core, found)


def _shrink(recheck: Recheck, operations: list[Operation]) -> list[Operation]:
    core = list(operations)
    for operation in operations:
        without = [o for o in core if o is not operation]
        if recheck.impossible(without, ""):
            core = without
    return core


def _report(session: Session, core: list[Operation], found: Findings) -> None:
    """Name it after the last read of the core that lacks what the rest of the core knows."""
    reads = sorted((o for o in core if o.f == "history"), key=lambda o: o.invoked_ns)
    for read in reversed(reads):
        absent = [m for o in core if o.f != "forget" for m in o.ids() if m not in read.ids()]
        if absent:
            message = absent[-1]
            later = [o for o in session.reads if o.status == "ok" and message in o.ids()]
            again = any(o.completed_ns > read.invoked_ns for o in later)
            numbers = [o.number for o in core]
            name, because = "stale" if again else "lost", f"read {read.number} lacks {message!r}"
            found.add(name, message, numbers, because, read=read.number, derived=True)
            return
