"""What a source gives: sessions with their rows, oldest first, as they are stored there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Row:
    """One stored message: its place, which stays the same when others are added, and its text."""

    place: int
    text: str | bytes
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One session at one instant. `ttl_s` is what is left of its time to live, if it has one."""

    rows: Sequence[Row]
    ttl_s: float | None = None


class Source(Protocol):
    """A framework's store, only ever read from."""

    def names(self) -> Iterator[str]:
        """Every session that is there, each once."""

    def read(self, name: str) -> Found:
        """One of them; empty where it is gone meanwhile."""

    def close(self) -> None:
        """Let go of it."""
