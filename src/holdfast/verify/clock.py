"""A clock that can be moved while the processes on it go on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.verify import shims
from holdfast.verify.instrument import Launch
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.shims.shared import shared_file

CLOCK_ERROR_S: Final = 1.0
"""How far what it says may be from what we set: it was asked a moment later."""
DAY_S: Final = 86_400.0
_NS: Final = 1_000_000_000
_SIZE_BYTES: Final = 8
_ASK_TIMEOUT_S: Final = 30.0
_NOTICED_WITHIN_S: Final = 2.0


class Clock:
    """The wall clock of every process that is started under it: an instrument.

    It goes as fast as the real one, some time before or after it. Each is a host of its own:
    two clocks that were moved apart are two machines whose time has drifted. The monotonic
    clock is nobody's to move.
    """

    def __init__(self, folder: Path, name: str = "clock") -> None:
        """Its shared file is made in the folder, and goes with it."""
        shims.library("clock")  # say now if there is none
        self._folder = folder.absolute()  # a started process may work elsewhere
        self._path = self._folder / name
        self._shared = memoryview(shared_file(self._path, _SIZE_BYTES)).cast("q")

    @property
    def offset_s(self) -> float:
        """How far it is from the real time."""
        return self._shared[0] / _NS

    def wrap(self, launch: Launch) -> Launch:
        """The process with our clock in it."""
        return shims.preload(launch, "clock", self._folder, HOLDFAST_CLOCK=str(self._path))

    def move(self, by_s: float, ask: Callable[[], float] | None = None) -> Evidence:
        """Move it, also back; proven by `ask`, which asks somebody who runs by it for the time.

        Without one a new process is asked.
        """
        self._shared[0] += round(by_s * _NS)
        seen_s = self._seen_s(ask or self.ask)
        if abs(seen_s - self.offset_s) > CLOCK_ERROR_S:
            raise FaultNotProven(
                f"clock: it was moved to {self.offset_s:+.1f} s, and the process that was asked is at "
                f"{seen_s:+.1f} s: a statically linked program ignores the preload"
            )
        return Evidence(
            "clock",
            f"moved by {_span(by_s)}; asked, it says {seen_s:+.1f} s from the real time",
            {"by_s": by_s, "offset_s": self.offset_s, "seen_s": seen_s},
        )

    def _seen_s(self, ask: Callable[[], float]) -> float:
        """How far from the real time it says it is.

        Asked again for a while: Valkey looks at the clock only every few milliseconds.
        """
        seen = [0.0]

        def agrees() -> bool:
            seen[0] = ask() - time.time()
            return abs(seen[0] - self.offset_s) <= CLOCK_ERROR_S

        await_true(agrees, _NOTICED_WITHIN_S)
        return seen[0]

    def ask(self) -> float:
        """The time in seconds since 1970 as a new process sees it."""
        command = (sys.executable, "-I", "-S", "-c", "import time; print(time.time())")
        launch = self.wrap(Launch(command, {}))
        done = subprocess.run(  # noqa: S603 - our own words
            launch.command,
            env=launch.environment,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
        )
        return float(done.stdout)


def _span(by_s: float) -> str:
    return f"{by_s / DAY_S:+g} days" if abs(by_s) >= DAY_S else f"{by_s:+g} s"
