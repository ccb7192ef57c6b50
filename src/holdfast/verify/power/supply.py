"""What every mechanism of a power cut is: the power supply of one directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.verify.instrument import Instrument
from holdfast.verify.proof import Evidence


class Supply(Protocol):
    """The power of one directory. A process that keeps data in it is started under its instruments.

    A supply that was opened has passed its positive control: a write that was synced survived
    a cut, and one that was not did not. One that cannot pass raises `FaultNotProven`; one that
    this machine does not allow raises `VerifyError` with what is missing.
    """

    mechanism: str
    """`block`, `trace` or `shim`."""
    instruments: tuple[Instrument, ...]

    @property
    def directory(self) -> Path:
        """Make the data in here: an engine's `storage`. The path stays the same after a cut."""

    def settle(self) -> None:
        """Whatever is in the directory now is on the disk: the state before the story begins."""

    def cut(self, end: Callable[[], object]) -> Evidence:
        """Lose what is not on the disk.

        `end` ends every process that uses the directory, and is called at the right moment.
        Afterwards the directory holds what a machine finds when the power is back. Facts:
        `mechanism`, `unsynced_bytes` (dropped), `took_ms`, and `at_ns`, the instant of the cut
        on the monotonic clock: what was acknowledged later does not count.
        """

    def close(self) -> None:
        """Leave nothing behind: no mount, no device, no file, no process."""
