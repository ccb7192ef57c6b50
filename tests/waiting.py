"""Wait for a condition, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], *, within_s: float = 30.0) -> float:
    """Return how long it took until the condition held; fail if it does not in time."""
    begin = time.monotonic()
    while not condition():
        taken = time.monotonic() - begin
        assert taken < within_s, f"the condition did not hold within {within_s} s"
        time.sleep(0.001)
    return time.monotonic() - begin
