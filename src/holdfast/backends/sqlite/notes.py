"""The notes of readers: what was shown as expired stays so. A read has its answer without them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from holdfast.backends.sqlite.errors import BACKEND
from holdfast.backends.sqlite.writer import NOTE_TIMEOUT_S, Pending
from holdfast.backends.writes import ThreadWrite
from holdfast.commands import MarkExpired
from holdfast.errors import EngineUnreachable, HoldfastError

AGAIN_S: Final = 1.0
"""After one that failed the next is tried so much later: a read must not wait each time."""


class Note(ThreadWrite):
    """Waits for other writes no longer than a reader may be kept."""

    def wait(self, timeout_s: float) -> bool:
        """Until it is woken, or the time is over; raises where it has waited too long."""
        if time.monotonic() - self.since_s > NOTE_TIMEOUT_S:
            raise EngineUnreachable(
                "other writes took too long; nothing was noted", backend=BACKEND
            )
        return super().wait(min(timeout_s, NOTE_TIMEOUT_S))


class Notes:
    """Makes them, as far as that holds nobody up."""

    def __init__(self, run: Callable[[Note], Any]) -> None:
        self._run = run
        self._at_s = 0.0

    def make(self, command: MarkExpired | None) -> None:
        """If that fails, what was read is right all the same, and a later read tries again."""
        if command is None or time.monotonic() < self._at_s:
            return
        try:
            self._run(Note(Pending(command)))
        except HoldfastError:
            self._at_s = time.monotonic() + AGAIN_S
