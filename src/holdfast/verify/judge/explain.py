"""Everything that is wrong with one session, each finding proven by its witness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.errors import VerifyError
from holdfast.verify.history import History, Session
from holdfast.verify.judge.absence import check_absence
from holdfast.verify.judge.case import Case, make_case, split
from holdfast.verify.judge.contents import check_contents
from holdfast.verify.judge.derived import check_derived
from holdfast.verify.judge.diagnosis import Diagnosis, diagnose
from holdfast.verify.judge.facts import Facts
from holdfast.verify.judge.findings import Findings, Found
from holdfast.verify.judge.leftover import check_leftover, is_small
from holdfast.verify.judge.numbers import check_numbers
from holdfast.verify.judge.order import check_order
from holdfast.verify.judge.presence import check_expired
from holdfast.verify.judge.recheck import Recheck
from holdfast.verify.judge.verdict import Anomaly

_APART: Final = frozenset({"atomic"})


@dataclass(frozen=True, slots=True)
class Explained:
    """One session's findings; reads nobody can decide; acknowledged appends nobody read."""

    diagnosis: Diagnosis
    undecided: int
    unread: int

    @property
    def anomalies(self) -> list[Anomaly]:
        """What is wrong with the session, taken by itself."""
        return self.diagnosis.anomalies()


def explain(history: History, session: Session) -> Explained:
    """Judge one session by the rules, and a small one in which they find nothing by search."""
    found = Findings(session.name)
    case = make_case(history, session)
    shown = {message for read in case.reads for message in read.ids}
    unread = sum(append.acked and shown.isdisjoint(append.ids) for append in case.appends)
    undecided = apply_rules(history, session, case, found)
    recheck = Recheck(history, session)
    proven = _proven(recheck, found)
    if not proven and is_small(session):
        found = Findings(session.name)
        check_leftover(recheck, session, found)
        proven = _proven(recheck, found)
    elif not proven and len(found):
        doubtful = next(iter(found))
        raise VerifyError(
            f"the judge found {doubtful.name} in session {session.name!r} and could not confirm "
            f"it from operations {doubtful.witness}: {doubtful.because}. "
            "This is a fault of the judge; please report it with the history.",
            operation="judge",
        )
    return Explained(diagnose(recheck, session, proven), undecided, unread)


def apply_rules(history: History, session: Session, case: Case, found: Findings) -> int:
    """Fill in what the rules find, proven or not; gives the number of undecidable reads.

    What single operations prove comes first. Only where they prove nothing are bounds asked,
    which one wrong read would make wrong for all others.
    """
    check_contents(case, history.writers, found)
    found.apart = found.names("torn") or found.names("reorder")
    if found.apart:
        case = split(case)
    facts = Facts(case)
    check_order(facts, found)
    check_absence(facts, found)
    undecided = check_expired(facts, found)
    check_numbers(session, found)
    if not len(found):
        check_derived(facts, found)
    return undecided


def _proven(recheck: Recheck, found: Findings) -> list[Found]:
    def confirms(anomaly: Anomaly) -> bool:
        whole = anomaly.promise == "atomic" or not found.apart
        if not whole and recheck.confirms(anomaly, _APART):
            return True
        return (whole or anomaly.promise == "ordered") and recheck.confirms(anomaly)

    return found.proven(confirms)


def check_only_numbers(history: History, session: Session) -> Diagnosis:
    """What is wrong with the numbers of a session that is otherwise sound."""
    found = Findings(session.name)
    check_numbers(session, found)
    recheck = Recheck(history, session)
    return diagnose(recheck, session, _proven(recheck, found))
