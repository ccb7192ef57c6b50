"""Short words for hand-written histories: `append(1, 3, 5, "a")` began at 3 and ended at 5."""

from __future__ import annotations

from typing import Any

from holdfast.verify.judge import Anomaly
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


def named(anomalies: tuple[Anomaly, ...] | list[Anomaly]) -> set[tuple[str, str]]:
    return {(anomaly.name, anomaly.message) for anomaly in anomalies}
