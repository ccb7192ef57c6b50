"""Everything that is wrong with one session, each finding proven by its witness."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import VerifyError
from holdfast.verify.history import History, Session
from holdfast.verify.judge.absence import check_absence
from holdfast.verify.judge.bounds import Bounds, make_bounds
from holdfast.verify.judge.case import Case, make_case
from holdfast.verify.judge.contents import check_contents
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.leftover import check_leftover, is_small
from holdfast.verify.judge.numbers import check_numbers
from holdfast.verify.judge.order import check_order
from holdfast.verify.judge.presence import check_expired, check_forgotten
from holdfast.verify.judge.recheck import confirmed
from holdfast.verify.judge.verdict import Anomaly


@dataclass(frozen=True, slots=True)
class Explained:
    """One session's anomalies; reads nobody can decide; acknowledged appends nobody read."""

    anomalies: list[Anomaly]
    undecided: int
    unread: int


def explain(history: History, session: Session) -> Explained:
    """Judge one session by the rules, and a small one in which they find nothing by search."""
    found = Findings(session.name)
    case = make_case(session, history.header)
    bounds, undecided = apply_rules(history, session, case, found)
    proven = _proven(history, found)
    if not proven and is_small(session):
        found = Findings(session.name)
        check_leftover(history, session, found)
        proven = _proven(history, found)
    elif not proven and len(found):
        doubtful = next(iter(found))
        raise VerifyError(
            f"the judge found {doubtful.name} in session {session.name!r} and could not confirm "
            f"it from operations {doubtful.witness}: {doubtful.because}. "
            "This is a fault of the judge; please report it with the history.",
            operation="judge",
        )
    unread = sum(append.acked and append not in bounds.shown_by for append in case.appends)
    return Explained(proven, undecided, unread)


def apply_rules(
    history: History, session: Session, case: Case, found: Findings
) -> tuple[Bounds, int]:
    """Fill in what the rules find, proven or not; gives the number of undecidable reads too."""
    check_contents(case, history.writers, found)
    bounds = make_bounds(case)
    check_order(case, bounds, found)
    check_absence(case, bounds, found)
    check_forgotten(case, bounds, found)
    undecided = check_expired(case, bounds, found)
    check_numbers(session, found)
    return bounds, undecided


def _proven(history: History, found: Findings) -> list[Anomaly]:
    return found.proven(lambda anomaly: confirmed(history, anomaly))


def check_only_numbers(history: History, session: Session) -> list[Anomaly]:
    """What is wrong with the numbers of a session that is otherwise sound."""
    found = Findings(session.name)
    check_numbers(session, found)
    return _proven(history, found)
