"""What a source gives: sessions with their rows, oldest first, as they are stored there. What became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from holdfast import operations
from holdfast.errors import UsageError
from holdfast.model import SessionState

GONE: Final = (SessionState.FORGOTTEN, SessionState.EXPIRED)


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


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message that could not be brought over: its place in the source, and why.

    Without a place it is the whole session.
    """

    session: str
    place: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A session of the target that is not what the source says."""

    session: str
    reason: str


@dataclass(slots=True)
class Moved:
    """What a migration did. `present` messages were there already; `verified` were read back."""

    unit: str = "message"
    """What is counted: messages, or of LangGraph's threads checkpoints."""
    sessions: int = 0
    messages: int = 0
    present: int = 0
    verified: int = 0
    expiring: int = 0
    """Sessions that bring what was left of their time to live."""
    gone: list[str] = field(default_factory=list)
    """Sessions that were forgotten or have expired in the target: they are not brought back."""
    foreign: list[str] = field(default_factory=list)
    """What lay among the sessions and is no history."""
    left_out: list[LeftOut] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all of the source is in the target."""
        return not self.left_out and not self.differences

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "complete": self.complete}


def no_session(name: str) -> str | None:
    """Why nothing in a store of ours can have this name; None if it can."""
    try:
        operations.session_bytes(name)
    except UsageError as error:
        return f"{type(error).__name__}: {error}"
    return None
