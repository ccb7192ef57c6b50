"""Everything that is wrong with one session, each finding proven by its witness."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.verify.history import History, Operation, Session
from holdfast.verify.judge.absence import check_absence
from holdfast.verify.judge.bounds import make_bounds
from holdfast.verify.judge.case import make_case
from holdfast.verify.judge.contents import check_contents
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.leftover import check_leftover
from holdfast.verify.judge.numbers import check_numbers
from holdfast.verify.judge.order import check_order
from holdfast.verify.judge.presence import check_expired, check_forgotten
from holdfast.verify.judge.recheck import confirmed
from holdfast.verify.judge.verdict import Anomaly


def explain(history: History, session: Session) -> tuple[list[Anomaly], int]:
    """The anomalies of a session, and the number of its reads that nobody can decide."""
    found, undecided = by_rules(history, session, history.writers)
    proven = found.proven(lambda anomaly: confirmed(history, anomaly))
    if not proven:
        found = Findings(session.name)
        check_leftover(history, session, found)
        proven = found.proven(lambda anomaly: confirmed(history, anomaly))
    return proven, undecided


def by_rules(
    history: History, session: Session, writers: Mapping[str, Operation]
) -> tuple[Findings, int]:
    """What the rules find, proven or not."""
    found = Findings(session.name)
    case = make_case(session, history.header)
    check_contents(case, writers, found)
    bounds = make_bounds(case)
    check_order(case, bounds, found)
    check_absence(case, bounds, found)
    check_forgotten(case, bounds, found)
    undecided = check_expired(case, bounds, found)
    check_numbers(session, found)
    return found, undecided
