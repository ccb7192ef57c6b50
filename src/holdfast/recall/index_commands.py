"""What an index is asked for, and what it answers. One index belongs to one log.

A log is a session, or the memories beside one. The index of a log knows the model that made its
vectors and the number up to which it has indexed; both change only together with its entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from holdfast.commands import Command
from holdfast.recall.vectors import nearness

CANDIDATES_MAX: Final = 4096
"""Entries whose vectors are compared exactly; in a larger log a sketch of each chooses them."""
POSTINGS_MAX: Final = 10_000
"""Entries that are looked up by words; commoner words are left out first."""


@dataclass(slots=True)
class Position:
    """How far an index has come in its log, with vectors of which model. "" and 0: not at all.

    `floor`: it holds nothing of numbers up to this one. Where the log's own floor is higher, the
    index holds what was forgotten or rewritten, and is rebuilt.
    """

    model: str = ""
    upto: int = 0
    floor: int = 0
    mark: bytes = b""
    """Of the record at `upto`, from an index that could be of another log of this name."""


@dataclass(slots=True)
class Entry:
    """What an index keeps of one record. Nothing of it can be read."""

    seq: int
    vector: bytes
    """One signed byte a dimension."""
    sketch: bytes
    """One bit a dimension: its sign."""
    words: Mapping[int, float]
    """Hash of each word, with its weight."""


@dataclass(slots=True)
class Candidate:
    """A record that may be meant: how near its vector is, and how well its words fit."""

    seq: int
    nearness: float
    words: float | None
    """None where the index knows no words: then the texts are asked."""


@dataclass(slots=True)
class ReadPosition(Command[Position]):
    """How far the index of a log is."""

    for_index: ClassVar[bool] = True
    operation: ClassVar[str] = "recall"
    session: bytes


@dataclass(slots=True)
class Extend(Command[Position]):
    """Add entries and move on from `after` to `upto`, all or none; the position that then holds.

    Nothing is added if the index is not at `after` with vectors of `model`, or if the
    log was forgotten meanwhile: then another client has moved it. `from_scratch` drops all that was there.
    """

    for_index: ClassVar[bool] = True
    operation: ClassVar[str] = "index"
    writes: ClassVar[bool] = True
    session: bytes
    model: str
    after: int
    upto: int
    entries: Sequence[Entry]
    floor: int
    from_scratch: bool = False
    mark: bytes = b""


@dataclass(slots=True)
class Search(Command[Sequence[Candidate]]):
    """Records near a vector or with some of the words: at most `limit` by each, in no order."""

    for_index: ClassVar[bool] = True
    operation: ClassVar[str] = "recall"
    session: bytes
    model: str
    vector: bytes
    sketch: bytes
    words: Sequence[int]
    limit: int


def nearest(search: Search, rows: Sequence[tuple[int, bytes, float]]) -> list[Candidate]:
    """Of records with their vectors and what their words are worth: the nearest, and the worded."""
    if not rows:
        return []
    near = nearness(search.vector, [vector for _, vector, _ in rows])
    found = [Candidate(seq, at, worth) for (seq, _, worth), at in zip(rows, near, strict=True)]
    found.sort(key=lambda one: -one.nearness)
    return found[: search.limit] + [one for one in found[search.limit :] if one.words]


@dataclass(slots=True)
class Erase(Command[None]):
    """Drop the index of a log that was forgotten. An index inside the log's engine has done so.

    What was read of the log before, up to the number `upto`, must not be added any more.
    """

    for_index: ClassVar[bool] = True
    operation: ClassVar[str] = "forget"
    writes: ClassVar[bool] = True
    session: bytes
    upto: int = 0


@dataclass(slots=True)
class EraseEntry(Command[None]):
    """Drop what an index outside the log's engine has of one record, which was erased."""

    for_index: ClassVar[bool] = True
    operation: ClassVar[str] = "forget_memory"
    writes: ClassVar[bool] = True
    session: bytes
    number: int
