"""How long a look may take: all of it, and each question."""

from __future__ import annotations

import time
from typing import Final

TIME_S: Final = 10.0
"""A whole audit, unless the caller says otherwise."""
QUESTION_S: Final = 3.0
"""One question to an engine."""
KEYS_MAX: Final = 1000
"""Keys in a sample."""
SESSIONS_MAX: Final = 50
"""Sessions of our own store of which records are read."""
RECORDS_MAX: Final = 20
"""Records of each of them, the newest."""


class Budget:
    """Time that runs from its making."""

    def __init__(self, time_s: float = TIME_S) -> None:
        self._end_s = time.monotonic() + time_s

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be asked."""
        return time.monotonic() >= self._end_s

    @property
    def question_s(self) -> float:
        """How long the next question may take; never nothing, so that a time-out is an answer."""
        return max(0.05, min(QUESTION_S, self._end_s - time.monotonic()))
