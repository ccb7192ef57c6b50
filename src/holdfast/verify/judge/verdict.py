"""What the judge says: anomalies by name, a verdict for each promise, and the worst of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

ANOMALIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lost": "durable",
        "rollback": "durable",
        "hole": "snapshot",
        "torn": "atomic",
        "stale": "fresh",
        "reorder": "ordered",
        "seq-clash": "ordered",
        "duplicate": "exactly-once",
        "doubled": "faithful",
        "window": "snapshot",
        "phantom": "snapshot",
        "leak": "isolated",
        "resurrected": "forgotten",
        "expired-early": "expiring",
        "expired-late": "expiring",
    }
)
"""Every anomaly, with the promise that it breaks."""

JUDGED: Final = tuple(p for p in dict.fromkeys(ANOMALIES.values()) if p != "faithful")
"""The promises that a history can speak for. It holds ids only, so it never shows `faithful` kept."""


class Verdict(StrEnum):
    """Worst wins: broken, then unknown, then kept. Not claimed is never kept."""

    KEPT = "kept"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    NOT_CLAIMED = "not claimed"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One promise broken once: the operations that prove it, and why in a sentence."""

    name: str
    session: str
    message: str
    witness: tuple[int, ...]
    because: str
    confirmed: bool = False
    follows_from: tuple[str, ...] | None = None
    """The names of the roots that explain it; None where it is a root itself, and counts."""

    @property
    def promise(self) -> str:
        """The promise that it breaks."""
        return ANOMALIES[self.name]


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """The verdict on a history. `unclaimed` are findings against promises nobody made."""

    verdict: Verdict
    anomalies: tuple[Anomaly, ...]
    unclaimed: tuple[Anomaly, ...]
    promises: Mapping[str, Verdict]
    counts: Mapping[str, int]
    unknown_sessions: int
    because: str
    weakened: Mapping[str, str] = field(default_factory=dict)
    """Promises of which all findings follow from others: how they were judged, in words."""

    @property
    def roots(self) -> tuple[Anomaly, ...]:
        """The findings that stand on their own. Only they break a promise."""
        return tuple(a for a in self.anomalies if a.follows_from is None)
