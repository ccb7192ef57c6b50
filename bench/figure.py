"""What a bench yields, and how two ways are timed side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured ratio, and the bound that it is held to."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether the figure is within its bound."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def side_by_side(ways: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The median time of each way in seconds, all of them taking turns within every round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            taken[name].append(seconds(work))
    return {name: statistics.median(times) for name, times in taken.items()}
