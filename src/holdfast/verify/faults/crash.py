"""A crash at a chosen line: of the application, or of its engine, proven to be there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.children import Child
from holdfast.verify.lines import Point, at_point, find_point
from holdfast.verify.proof import Evidence

LIFE_S: Final = 60.0
"""No child lives longer; one that waits for ever is ended and said to."""
_GRACE_S: Final = 10.0


class CrashAt:
    """Runs code in a child of this process and ends that by SIGKILL at one line.

    The child is a fork, so a store has to be opened inside the code that is given: what was
    open before belongs to this process.
    """

    def __init__(self, point: Point) -> None:
        self.point = point

    def run(self, code: Callable[..., object], *arguments: Any, **named: Any) -> Evidence:
        """Call `code(…)` in the child; returns when it was killed there.

        `FaultNotProven` where it ended without having reached the line: an error of the code
        is named in the sentence.
        """
        child = Child(lambda say: self._work(say, lambda: code(*arguments, **named)), life_s=LIFE_S)
        return self._evidence(*child.outcome(LIFE_S + _GRACE_S))

    def _work(self, say: Callable[[object], None], code: Callable[[], object]) -> None:
        def die() -> None:
            say({"reached": True})
            os.kill(os.getpid(), signal.SIGKILL)

        with contextlib.suppress(FaultNotProven), at_point(self.point, die):
            code()

    def _evidence(self, said: list[dict[str, Any]], code: int) -> Evidence:
        place = f"{self.point.name()}: {self.point.source}"
        if {"reached": True} in said and code == -signal.SIGKILL:
            facts = {"file": self.point.file, "line": self.point.line, "hit": self.point.hit}
            return Evidence("crash-at-line", f"ended by SIGKILL at {place}", facts)
        why = "the code ended before" if code >= 0 else f"the code was ended by signal {-code}"
        why = next((each["error"] for each in said if "error" in each), why)
        raise FaultNotProven(f"the crash at {place} was never reached: {why}")


def crash_at(where: str, line: int | str, *, hit: int = 1) -> CrashAt:
    """The crash at `"package.module:Class.method"` and a line of it, by number or by its text.

    `hit` is how often the line is reached until then. Code that runs in other threads counts.
    """
    return CrashAt(find_point(where, line, hit=hit))
