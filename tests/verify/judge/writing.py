"""Short words for hand-written histories: `append(1, 3, 5, "a")` began at 3 and ended at 5."""

from __future__ import annotations

from typing import Any

from holdfast.verify.history import History
from holdfast.verify.judge import Anomaly, JudgeResult
from holdfast.verify.judge.case import make_case
from holdfast.verify.judge.explain import apply_rules
from holdfast.verify.judge.findings import Findings
from tests.verify.judge.oracle import NEVER_NS, Op

S = 1_000_000_000


def append(number: int, inv: int, comp: int, *ids: str, **more: Any) -> Op:
    return Op(number, "append", inv, comp, more.pop("status", "ok"), ids, **more)


def lost_reply(number: int, inv: int, *ids: str, **more: Any) -> Op:
    """An append of which nobody knows whether it happened."""
    return Op(number, "append", inv, more.pop("closed", NEVER_NS), "info", ids, **more)


def read(number: int, inv: int, comp: int, *ids: str, **more: Any) -> Op:
    return Op(number, "history", inv, comp, "ok", ids, **more)


def forget(number: int, inv: int, comp: int, **more: Any) -> Op:
    return Op(number, "forget", inv, comp, more.pop("status", "ok"), **more)


def suspected(history: History) -> Findings:
    """What the rules alone find in the session `s`, before any of it is proven."""
    session = history.sessions["s"]
    found = Findings(session.name)
    apply_rules(history, session, make_case(history, session), found)
    return found


def named(anomalies: tuple[Anomaly, ...] | list[Anomaly]) -> set[tuple[str, str]]:
    return {(anomaly.name, anomaly.message) for anomaly in anomalies}


def roots(result: JudgeResult) -> list[Anomaly]:
    """The findings that count: the others follow from them."""
    return [anomaly for anomaly in result.anomalies if anomaly.follows_from is None]
