"""A crash at a chosen line: of the application, or of its engine, proven to be there."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

from holdfast.errors import FaultNotProven
from holdfast.verify.engines.protocol import Evidence
from holdfast.verify.lines import Point, at_point, find_point

LIFE_S: Final = 60.0
"""No child lives longer; one that waits for ever is ended and said to."""
WORDS_BYTES_MAX: Final = 4000


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
        pipe, theirs = os.pipe()
        with warnings.catch_warnings():
            # From 3.12 on Python warns where a process with threads is forked. Nothing but
            # the given code runs in this child, and it ends without any clean-up.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os.close(pipe)
            self._in_the_child(theirs, code, arguments, named)
        os.close(theirs)
        with os.fdopen(pipe, "rb") as words:
            said = words.read()
        _, status = os.waitpid(child, 0)
        return self._evidence(said, status)

    def _in_the_child(
        self, pipe: int, code: Callable[..., object], arguments: Any, named: dict[str, Any]
    ) -> NoReturn:
        """Never returns: nothing of the parent's own ending may happen twice."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, LIFE_S)

        def die() -> None:
            os.write(pipe, b"reached")
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            with at_point(self.point, die):
                code(*arguments, **named)
        except BaseException as error:  # noqa: BLE001 - the parent tells it
            words = "" if isinstance(error, FaultNotProven) else f"{type(error).__name__}: {error}"
            os.write(pipe, words.encode(errors="replace")[:WORDS_BYTES_MAX])
        os._exit(1)

    def _evidence(self, said: bytes, status: int) -> Evidence:
        code = os.waitstatus_to_exitcode(status)
        place = f"{self.point.name()}: {self.point.source}"
        if said == b"reached" and code == -signal.SIGKILL:
            facts = {"file": self.point.file, "line": self.point.line, "hit": self.point.hit}
            return Evidence("crash-at-line", f"ended by SIGKILL at {place}", facts)
        why = said.decode(errors="replace") or (
            "the code ended before" if code >= 0 else f"the code was ended by signal {-code}"
        )
        raise FaultNotProven(f"the crash at {place} was never reached: {why}")


def crash_at(where: str, line: int | str, *, hit: int = 1) -> CrashAt:
    """The crash at `"package.module:Class.method"` and a line of it, by number or by its text.

    `hit` is how often the line is reached until then. Code that runs in other threads counts.
    """
    return CrashAt(find_point(where, line, hit=hit))
