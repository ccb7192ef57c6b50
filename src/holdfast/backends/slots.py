"""At most so many at a time; a caller waits for a place within a bound.

A place is held by an object that the caller makes before its `try`, and is given back by one
call of C code that stands first in its `finally`, so that no interrupt can lose it
(group_commit.py says why):

    holder = object()
    try:
        if not slots.take(holder, timeout_s):
            raise …
        …
    finally:
        slots.held.pop(holder, None)
        slots.wake_next()
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import Final

LOOK_S: Final = 0.05
"""How often a waiting caller looks by itself: an interrupt may have swallowed its wake-up."""


class Slots:
    """Places for threads."""

    def __init__(self, most: int) -> None:
        self.held: dict[object, None] = {}
        self._most = most
        self._waiting: deque[threading.Lock] = deque()
        self._changing = threading.Lock()

    def take(self, holder: object, timeout_s: float) -> bool:
        """Whether a place came free in time; the holder has it now."""
        if self._took(holder):
            return True
        deadline_s = time.monotonic() + timeout_s
        woken = threading.Lock()
        woken.acquire()
        try:
            while (left_s := deadline_s - time.monotonic()) > 0:
                self._waiting.append(woken)
                if self._took(holder):  # it came free in between, and nobody was woken
                    return True
                if not woken.acquire(timeout=min(left_s, LOOK_S)):
                    self._leave(woken)
                if self._took(holder):
                    return True
            return False
        finally:
            self._leave(woken)

    def wake_next(self) -> None:
        """A place is free: let the one look that has waited longest."""
        with contextlib.suppress(IndexError):  # nobody waits
            self._waiting.popleft().release()

    def _leave(self, woken: threading.Lock) -> None:
        with contextlib.suppress(ValueError):  # another thread has woken it
            self._waiting.remove(woken)

    def _took(self, holder: object) -> bool:
        with self._changing:
            if len(self.held) >= self._most:
                return False
            self.held[holder] = None
            return True
