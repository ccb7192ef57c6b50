"""From a history to its verdict: session by session, and the worst wins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.verify.history import NEVER_NS, Header, History, Operation, Session
from holdfast.verify.judge.diagnosis import Diagnosis, settled
from holdfast.verify.judge.explain import Explained, check_only_numbers, explain
from holdfast.verify.judge.screen import unread_if_sound
from holdfast.verify.judge.verdict import JUDGED, Anomaly, JudgeResult, Verdict
from holdfast.verify.promises import ALWAYS_JUDGED


def judge(history: History) -> JudgeResult:
    """The verdict on a history, with every anomaly and the operations that prove it."""
    seen = _Seen()
    diagnoses: list[Diagnosis] = []
    last_fault_ns = max((fault.time_ns for fault in history.faults), default=-1)
    for session in history.sessions.values():
        judged = judge_session(history, session)
        if judged.diagnosis.found:
            diagnoses.append(judged.diagnosis)
        seen.undecided += judged.undecided
        seen.unread += judged.unread
        seen.unknown += not judged.diagnosis.found and not _read_after(session, last_fault_ns)
    seen.anomalies = _mixed(history, settled(diagnoses))
    return _result(history, seen)


def _mixed(history: History, anomalies: list[Anomaly]) -> list[Anomaly]:
    """What a session lacks because it stands in another one follows from that leak.

    So does what a forget of the other session took away with it.
    """
    leaks = [a for a in anomalies if a.name == "leak" and a.follows_from is None]
    leaked = {a.message for a in leaks}
    partners: dict[str, set[str]] = {}
    for a in leaks:
        home = history.writers[a.message].session
        partners.setdefault(home, set()).add(a.session)
        partners.setdefault(a.session, set()).add(home)
    lacking: dict[str, list[Anomaly]] = {}
    for a in anomalies if leaked else ():
        if a.name in _MIXED:
            lacking.setdefault(a.session, []).append(a)
    answers = any(_is_anothers(history, a) for a in leaks)
    mixed = {
        name
        for name, missing in lacking.items()
        if 2 * len((lost := {a.message for a in missing}) & leaked) >= len(lost)
        or any(history.sessions[other].forgets for other in partners.get(name, ()))
        or (answers and all(_is_empty_elsewhere(history, a) for a in missing))
    }
    return [
        replace(a, follows_from=("leak",))
        if a.session in mixed and a.name in (*_MIXED, "resurrected") and a.follows_from is None
        else a
        for a in anomalies
    ]


def _is_anothers(history: History, leak: Anomaly) -> bool:
    """Whether the whole answer of the read is that of another session."""
    shown = history.operations[leak.witness[-1]].ids()
    return all(
        message in history.writers and history.writers[message].session != leak.session
        for message in shown
    )


def _is_empty_elsewhere(history: History, missing: Anomaly) -> bool:
    """Whether the reads that lack it show nothing, and may have answered for an empty session."""
    reads = [history.operations[number] for number in missing.witness]
    reads = [o for o in reads if o.f == "history" and missing.message not in o.ids()]
    others = [one for one in history.sessions.values() if one.name != missing.session]
    return all(not o.ids() and any(_may_be_empty(one, o) for one in others) for o in reads)


def _may_be_empty(session: Session, read: Operation) -> bool:
    first_ns = min((o.completed_ns for o in session.appends if o.status == "ok"), default=NEVER_NS)
    return first_ns >= read.invoked_ns or any(
        forget.invoked_ns <= read.completed_ns for forget in session.forgets
    )


_MIXED: Final = frozenset({"lost", "rollback", "stale", "hole", "window", "reorder"})


@dataclass(slots=True)
class _Seen:
    anomalies: list[Anomaly] = field(default_factory=list)
    undecided: int = 0
    unread: int = 0
    unknown: int = 0


def judge_session(history: History, session: Session) -> Explained:
    """One session: proven sound by the screen, otherwise explained by the rules."""
    unread = None if history.header.ttl_s is not None else unread_if_sound(session)
    if unread is None:
        return explain(history, session)
    if session.name in history.numbered:
        return Explained(check_only_numbers(history, session), 0, unread)
    return Explained(Diagnosis(), 0, unread)


def _read_after(session: Session, time_ns: int) -> bool:
    return any(o.status == "ok" and o.invoked_ns > time_ns for o in reversed(session.reads))


def _result(history: History, seen: _Seen) -> JudgeResult:
    claimed = _claimed(history.header)
    if "exactly-once" not in claimed:
        seen.anomalies = [_judged_always(history, anomaly) for anomaly in seen.anomalies]
    anomalies = tuple(a for a in _roots_first(seen.anomalies) if a.promise in claimed)
    roots = [a for a in anomalies if a.follows_from is None]
    counts = _counts(history, seen)
    doubt = _doubt(history, counts, seen.unknown)
    if roots:
        verdict, because = Verdict.BROKEN, roots[0].because
    elif doubt:
        verdict, because = Verdict.UNKNOWN, doubt
    else:
        verdict = Verdict.KEPT
        because = f"{counts['acknowledged']} acknowledged appends, and every read explained"
    broken = {a.promise for a in roots}
    shown = _evidence(history, counts) if not doubt else frozenset()
    return JudgeResult(
        verdict=verdict,
        anomalies=anomalies,
        unclaimed=tuple(a for a in seen.anomalies if a.promise not in claimed),
        promises={
            p: _promise(p, claimed, broken, shown)
            for p in (*JUDGED, *(p for p in broken if p not in JUDGED))
        },
        counts=counts,
        unknown_sessions=seen.unknown,
        because=because,
        weakened=_weakened(seen.anomalies),
    )


def _judged_always(history: History, anomaly: Anomaly) -> Anomaly:
    """What was appended once and is shown twice did not come back as it went in.

    That counts whether or not retries are claimed to be safe: nobody retried.
    """
    tries = [
        operation
        for operation in history.sessions[anomaly.session].appends
        if anomaly.name == "duplicate" and anomaly.message in operation.ids()
    ]
    return replace(anomaly, name="doubled") if len(tries) == 1 else anomaly


def _weakened(anomalies: list[Anomaly]) -> dict[str, str]:
    """How a promise was judged where another is broken so that it would be blamed as well."""
    broken = {a.promise for a in anomalies if a.follows_from is None}
    echoes = [a for a in anomalies if a.follows_from is not None and a.promise not in broken]
    words = {a.promise: f"judged apart from what follows from {_listed(a)}" for a in echoes}
    if any(a.name == "torn" and a.follows_from is None for a in anomalies):
        apart = "judged message by message, because batches are torn"
        words |= dict.fromkeys((p for p in JUDGED if p not in broken), apart)
    return words


def _listed(anomaly: Anomaly) -> str:
    return " and ".join(anomaly.follows_from or ())


def _roots_first(anomalies: list[Anomaly]) -> list[Anomaly]:
    return sorted(anomalies, key=lambda anomaly: anomaly.follows_from is not None)


def _claimed(header: Header) -> frozenset[str]:
    if header.claims is None:
        return frozenset(JUDGED)
    return ALWAYS_JUDGED | {claim.replace("_", "-") for claim in header.claims}


def _promise(
    promise: str, claimed: frozenset[str], broken: Iterable[str], shown: frozenset[str]
) -> Verdict:
    if promise not in claimed:
        return Verdict.NOT_CLAIMED
    if promise in broken:
        return Verdict.BROKEN
    return Verdict.KEPT if promise in shown else Verdict.UNKNOWN


def _counts(history: History, seen: _Seen) -> dict[str, int]:
    kinds = history.completed
    lost = {
        (a.session, a.message)
        for a in seen.anomalies
        if a.name in ("lost", "rollback") and a.follows_from is None
    }
    return {
        "sessions": len(history.sessions),
        "operations": len(history.operations),
        "acknowledged": kinds["append", "ok"],
        "never_read": seen.unread,
        "reads": kinds["history", "ok"],
        "forgets": kinds["forget", "ok"],
        "failed": sum(n for (_, status), n in kinds.items() if status == "fail"),
        "unknown": len(history.operations) - kinds.total(),
        "faults": len(history.faults),
        "lost": len(lost),
        "undecided": seen.undecided,
    }


def _doubt(history: History, counts: dict[str, int], unknown: int) -> str:
    """Why nothing can be called kept, or nothing."""
    missed = next((fault.name for fault in history.faults if not fault.landed), None)
    if not counts["operations"]:
        return "the history holds no operation"
    if not counts["acknowledged"]:
        return "no append was acknowledged, so nothing was promised"
    if missed is not None:
        return f"the fault {missed!r} was ordered and did not land"
    if unknown:
        when = "after the last fault" if history.faults else "at all"
        return f"{unknown} sessions were not read {when}"
    return ""


def _evidence(history: History, counts: dict[str, int]) -> frozenset[str]:
    """The promises that this history puts to the test at all: without a test none is kept."""
    tested = {
        "durable": counts["reads"] > 0,
        "fresh": counts["reads"] > 0,
        "snapshot": counts["reads"] > 0,
        "ordered": counts["acknowledged"] > 1,
        "atomic": history.batches > 0,
        "exactly-once": history.retries > 0,
        "isolated": counts["sessions"] > 1,
        "forgotten": counts["forgets"] > 0,
        "expiring": history.header.ttl_s is not None and counts["undecided"] == 0,
    }
    return frozenset(promise for promise, yes in tested.items() if yes)
