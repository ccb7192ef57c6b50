"""What proves that a fault landed: its evidence, and a bounded wait until that is seen."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_POLL_S: Final = 0.001
LANDED_MAX: Final = 50
"""So many are remembered, to explain a failure."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Proof that a `fault` landed: what was `seen` after it, in words, and as `facts`."""

    fault: str
    seen: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _landed.append(self)


_landed: deque[Evidence] = deque(maxlen=LANDED_MAX)


def landed() -> list[Evidence]:
    """The last faults that landed by this process since `forget_landed`, oldest first."""
    return list(_landed)


def forget_landed() -> None:
    """Before a test: what landed in the one before it explains nothing."""
    _landed.clear()


@contextlib.contextmanager
def rehearsal() -> Iterator[None]:
    """A fault inside only shows that it can be caused: nobody asked for it, so it did not land."""
    before = list(_landed)
    yield
    _landed.clear()
    _landed.extend(before)


def await_true(condition: Callable[[], bool], timeout_s: float, poll_s: float = _POLL_S) -> bool:
    """Ask every millisecond until the condition holds; False where it did not in that time.

    An OSError of the condition counts as "not yet": nobody listens, or the link broke.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            if condition():
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
