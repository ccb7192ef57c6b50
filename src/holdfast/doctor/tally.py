"""What a watch has counted so far: plain figures, read by the views."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from holdfast.doctor.finding import Audit


@dataclass(slots=True)
class Tally:
    """Totals only grow; the others say how it is now. NaN: not known yet."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    """Acknowledged, and not there any more."""
    misordered: int = 0
    """Times that messages stood in another order than their acks, or that numbers went back."""
    expired_early: int = 0
    expired_late: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """By the name of the error."""
    round_trips: int = 0
    round_trip_total_s: float = 0.0
    round_trip_s: float = math.nan
    ttl_drift_s: float = math.nan
    """The time that a session has left, less what it should have left."""
    up: bool = False
    last_success: float = math.nan
    """Seconds since 1970."""
    audit: Audit | None = None

    @property
    def broken(self) -> int:
        """How often a promise was seen broken. An engine that is away breaks none."""
        return self.lost + self.misordered + self.expired_early + self.expired_late

    def took(self, seconds: float) -> None:
        """Count a round trip."""
        self.round_trips += 1
        self.round_trip_total_s += seconds
        self.round_trip_s = seconds
