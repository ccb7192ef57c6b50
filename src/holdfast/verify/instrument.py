"""The seam at which a process under test is started: an instrument may change how.

A shim adds to the environment, a tracer stands before the command, a namespace is entered
first. Engines and client processes are started through the same seam, so that a fault which
needs an instrument works on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Launch:
    """A process about to be started."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def under(self, instruments: Iterable[Instrument]) -> Launch:
        """The same process under these instruments; the first is nearest to it."""
        launch = self
        for instrument in instruments:
            launch = instrument.wrap(launch)
        return launch


class Instrument(Protocol):
    """Something that must be there when a process starts. Its pid stays that of the process."""

    def wrap(self, launch: Launch) -> Launch:
        """How to start it instead. Called again for each start."""
