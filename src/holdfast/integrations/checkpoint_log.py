"""A LangGraph thread as one log: what its records mean, and where each of them is. Pure.

A put is one batch: the parts of values that the log does not hold yet, then the checkpoint, which
refers to every part, old or new, by how many records back it stands. A long list is held in parts
of 1, 8, 64 and 512 items, so that one more item costs one small part. The same way a checkpoint
refers to an index of all checkpoints and writes before it: a reader of the newest one can
find any other without reading the thread. Distances, unlike numbers, stay right in a copy.

Records of the first release carry their values themselves and no index; they are read as they are.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.integrations.checkpoint_values import (
    BASE,
    Packed,
    ReadPart,
    spans,
    squeezed,
    unsqueezed,
)
from holdfast.model import Message

FIELD: Final = "langgraph"
CHECKPOINT: Final = "checkpoint"
WRITES: Final = "writes"
PART: Final = "part"
INDEX: Final = "index"
STAGED: Final = "staged"
"""A checkpoint or writes of a copy under way: not there before an index names it."""

ENTRIES_AT_ONCE: Final = 32
FACT_CHARS_MAX: Final = 64

Place = tuple[str, str]
"""A checkpoint within its thread: namespace and id."""

Record = tuple[int, Message | None]
"""A number, and what stands there; None where it cannot be read."""


class Entry(NamedTuple):
    """What the index knows of one record: where it is, and what a search asks for."""

    seq: int
    ns: str
    checkpoint_id: str
    writes: bool
    parent: str | None = None
    facts: Mapping[str, Any] = {}
    """The plain values of a checkpoint's metadata."""
    omitted: Sequence[str] | None = None
    """The names of its other values; None where nobody has looked."""

    @property
    def place(self) -> Place:
        """The checkpoint that it is, or that these writes are pending on."""
        return self.ns, self.checkpoint_id

    def may_match(self, wanted: Mapping[str, Any]) -> bool:
        """Whether its metadata can have these values."""
        return all(
            self.facts[name] == value
            if name in self.facts
            else value is None or self.omitted is None or name in self.omitted
            for name, value in wanted.items()
        )

    def form(self, seq: int) -> list[Any]:
        """As JSON in the record of that number."""
        about = [] if self.writes else [self.parent, self.facts, self.omitted]
        return [seq - self.seq, self.ns, self.checkpoint_id, *about]

    @classmethod
    def of_form(cls, form: list[Any], seq: int) -> Entry:
        """The inverse of `form`."""
        distance, ns, checkpoint_id, *about = form
        return cls(seq - distance, ns, checkpoint_id, not about, *about)

    @classmethod
    def of(cls, seq: int, message: Message) -> Entry | None:
        """Of a record that can be seen by itself; None for any other."""
        kept = message.extra.get(FIELD)
        if message.role not in (CHECKPOINT, WRITES) or not isinstance(kept, dict):
            return None
        ns, checkpoint_id = kept["ns"], kept["checkpoint_id"]
        if message.role == WRITES:
            return cls(seq, ns, checkpoint_id, writes=True)
        facts, omitted = kept.get("facts", {}), kept.get("omitted")
        return cls(seq, ns, checkpoint_id, False, kept["parent"], facts, omitted)


@dataclass(slots=True)
class Body:
    """What a checkpoint holds beside what the index tells of it. Distances are from its own record."""

    checkpoint: Packed
    metadata: Packed
    values: dict[str, dict[str, Any]] | None
    """By channel: `{"in": packed}`, `{"one": [ref]}`, or `{"list": [ref, …]}`; a ref is distance
    and digest. None: the values are in the checkpoint."""
    early: list[int] | None
    """The writes on it that stand before it; None: nobody has looked."""
    index: dict[str, Any] | None

    def refs(self) -> Iterator[list[Any]]:
        """Every reference to a part."""
        for value in (self.values or {}).values():
            yield from value.get("one", value.get("list", ()))

    @classmethod
    def of(cls, message: Message) -> Body:
        """Of a checkpoint of either layout."""
        kept = message.extra[FIELD]
        held = unsqueezed(kept["z"]) if "z" in kept else kept
        return cls(*(held.get(name) for name in cls.__slots__))

    def squeezed(self) -> str:
        """As text, for the record."""
        return squeezed({name: getattr(self, name) for name in self.__slots__})


class Catalog:
    """Where everything of one thread is, up to a number; brought up to date record by record."""

    def __init__(self) -> None:
        self.last = 0
        self.entries: list[Entry] = []
        self.missing: list[int] = []
        """Runs of the index that were not read yet; what they name comes before all entries."""
        self.runs: dict[tuple[int, int], int] = {}
        """Where the index holds so many entries from the first of them on: begin and size."""
        self.skipped = 0
        self.damaged: list[int] = []
        self.checkpoints: dict[Place, Entry] = {}
        self.writes: dict[Place, list[int]] = {}
        self.latest: dict[str, Entry] = {}
        self.heads: dict[str, tuple[int, Message]] = {}
        """The newest checkpoint of the namespaces that were written last."""
        self.prune_at = 0
        """With so many checkpoints it is looked at again for what may go."""
        self.parts: dict[int, ReadPart] = {}
        """Parts of values that were read; what a number stands for never changes."""
        self.parts_bytes = 0
        self.end: Message | None = None
        """The record of number `last`, by which a thread is known again."""
        self.seen_at = float("-inf")
        """When it was last known to be this thread, by the clock of this process."""
        self.writing = threading.Lock()
        self._lock = threading.Lock()

    def advance(self, records: Iterable[Record], *, indexed: bool = True) -> bool:
        """Take in the next records; False where they do not go on from what is known.

        Not `indexed`: what they say of an index is not looked at.
        """
        with self._lock:
            return all(self._note(seq, message, indexed) for seq, message in records)

    def _note(self, seq: int, message: Message | None, indexed: bool) -> bool:
        if seq <= self.last:
            return True
        if seq != self.last + 1:
            return False
        if message is None:
            self.damaged.append(seq)
        elif indexed and not self._go_on(seq, message):
            return False
        elif (entry := Entry.of(seq, message)) is not None:
            self._add(entry)
            if not entry.writes:
                self._set_head(entry, message)
        self.last, self.end = seq, message
        return True

    def hold(self, parts: Mapping[int, ReadPart]) -> None:
        """Keep parts in memory."""
        with self._lock:
            self.parts_bytes += sum(len(part.data) for part in parts.values())
            self.parts.update(parts)

    def let_go(self) -> None:
        """Keep none of them; who has them in hand goes on with them."""
        with self._lock:
            self.parts, self.parts_bytes = {}, 0

    def ends_with(self, message: Message | None) -> bool:
        """Whether this is the last record that is known, and not one of another thread of that name."""
        end = self.end
        if message is None or end is None:
            return False
        return (message.role, message.extra) == (end.role, end.extra)

    def _go_on(self, seq: int, message: Message) -> bool:
        if message.role == INDEX:
            return False
        index = index_of(message)
        if index is None:
            return True
        self.runs = dict(_runs(seq, index))
        count = sum(size for _, size in self.runs) + len(index["recent"])
        return count == self.skipped + len(self.entries)

    def _set_head(self, entry: Entry, message: Message) -> None:
        self.heads.pop(entry.ns, None)
        self.heads[entry.ns] = entry.seq, message
        if len(self.heads) > BASE:
            del self.heads[next(iter(self.heads))]

    def begin(self, seq: int, index: dict[str, Any]) -> None:
        """Begin with the index that the record of this number holds; its runs are to be read."""
        self.runs = dict(_runs(seq, index))
        self.missing = list(self.runs.values())
        self.skipped = sum(size for _, size in self.runs)
        for form in index["recent"]:
            self._add(Entry.of_form(form, seq))

    def fill(self, runs: Mapping[int, Message]) -> None:
        """Take in the runs that were missing; `KeyError` where one of them is not there."""
        earlier = [
            Entry.of_form(form, seq)
            for seq in self.missing
            for form in unsqueezed(runs[seq].extra[FIELD]["run"])
        ]
        with self._lock:
            if not self.missing:
                return  # another thread was here first
            whole = Catalog()  # readers have no lock: they see what was known, or all of it
            for entry in (*earlier, *self.entries):
                whole._add(entry)
            self.writes, self.checkpoints = whole.writes, whole.checkpoints
            self.latest, self.entries = whole.latest, whole.entries
            self.missing, self.skipped = [], 0

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.writes:
            self.writes.setdefault(entry.place, []).append(entry.seq)
            return
        self.checkpoints.pop(entry.place, None)  # put again, it stands where it was put last
        self.checkpoints[entry.place] = entry
        self.latest[entry.ns] = entry

    def newest_first(self, ns: str | None) -> list[Entry]:
        """The checkpoints of a namespace, or of all."""
        found = list(self.checkpoints.values())  # at once: another thread may be adding to it
        return [entry for entry in reversed(found) if ns in (None, entry.ns)]

    def ancestors(self, place: Place) -> Iterator[Entry]:
        """Parent, its parent, and on; to the first or to one that is gone."""
        seen = {place}
        entry = self.checkpoints.get(place)
        while entry is not None and entry.parent is not None:
            place = entry.ns, entry.parent
            entry = None if place in seen else self.checkpoints.get(place)
            seen.add(place)
            if entry is not None:
                yield entry

    def knows_writes_of(self, entry: Entry) -> bool:
        """Whether all writes on it are known although older entries were not read."""
        seq, message = self.heads.get(entry.ns, (0, None))
        return message is not None and seq == entry.seq and Body.of(message).early is not None

    def pending(self) -> set[Place]:
        """Checkpoints with writes from which no other checkpoint was made."""
        entries = list(self.checkpoints.values())
        parents = {(entry.ns, entry.parent) for entry in entries}
        return {one.place for one in entries if one.place in self.writes} - parents


@dataclass(slots=True)
class Batch:
    """Records that are being put together, to stand right after number `last`."""

    last: int
    records: list[Message] = field(default_factory=list)

    def add(self, message: Message) -> int:
        """Add a record; its number, if the batch begins right after `last`."""
        self.records.append(message)
        return self.last + len(self.records)

    def add_part(self, packed: Packed) -> int:
        """Add a part of a value."""
        return self.add(record(PART, {"part": packed}))

    def add_index(self, entries: Sequence[Entry], runs: Mapping[tuple[int, int], int]) -> Any:
        """Add the runs that are missing of an index over these entries; what refers to them all."""
        placed = []
        for begin, size in spans(len(entries)):
            if size == 1:
                break
            seq = runs.get((begin, size))
            if seq is None:
                at = self.last + len(self.records) + 1
                run = squeezed([one.form(at) for one in entries[begin : begin + size]])
                seq = self.add(record(PART, {"run": run}))
            placed.append((size, seq))
        return placed, entries[len(entries) - len(entries) % BASE :]

    def index_form(self, made: Any) -> dict[str, Any]:
        """The index as the next record holds it."""
        at = self.last + len(self.records) + 1
        placed, recent = made
        return {
            "runs": [[size, at - seq] for size, seq in placed],
            "recent": [entry.form(at) for entry in recent],
        }


def in_groups(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """As many as are read together."""
    rest = iter(entries)
    while some := [*itertools.islice(rest, ENTRIES_AT_ONCE)]:
        yield some


def record(role: str, kept: dict[str, Any], *, message_id: str = "") -> Message:
    """A record of a thread; its time would say nothing that LangGraph does not."""
    return Message(role, None, id=message_id, created_at=None, extra={FIELD: kept})


def index_of(message: Message) -> dict[str, Any] | None:
    """The index in a record; None where it has none."""
    kept = message.extra.get(FIELD)
    if not isinstance(kept, dict) or "z" not in kept or message.role not in (CHECKPOINT, INDEX):
        return None
    index: dict[str, Any] | None = unsqueezed(kept["z"])["index"]
    return index


def _runs(seq: int, index: dict[str, Any]) -> Iterator[tuple[tuple[int, int], int]]:
    begin = 0
    for size, distance in index["runs"]:
        yield (begin, size), seq - distance
        begin += size


def facts_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a search can ask for without reading the checkpoint, and the names of the rest."""
    facts = {name: value for name, value in metadata.items() if _is_plain(value)}
    return {"facts": facts, "omitted": [name for name in metadata if name not in facts]}


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= FACT_CHARS_MAX
    return value is None or isinstance(value, bool) or (type(value) is int and abs(value) < 2**53)


def rebuilt(
    kept: Iterable[tuple[int, Message]], parts: Mapping[int, Message], roles: Mapping[str, str]
) -> tuple[list[Message], list[Entry]]:
    """A new log of these checkpoints and writes, without index; and where each of them is, from 1.

    `roles` renames them; `KeyError` where a part is not among `parts`.
    """
    batch = Batch(0)
    at: dict[int, int] = {}
    entries: list[Entry] = []
    written: dict[Place, list[int]] = {}
    for seq, message in kept:
        shown = message if message.role != STAGED else _unstaged(message)
        entry = Entry.of(0, shown)
        assert entry is not None  # noqa: S101 - the index names nothing else
        if not entry.writes:
            shown = _moved(seq, shown, parts, batch, at, written.get(entry.place, []))
        number = batch.add(_with_role(shown, roles.get(shown.role, shown.role)))
        if entry.writes:
            written.setdefault(entry.place, []).append(number)
        entries.append(entry._replace(seq=number))
    return batch.records, entries


def _moved(
    seq: int,
    message: Message,
    parts: Mapping[int, Message],
    batch: Batch,
    at: dict[int, int],
    written: Sequence[int],
) -> Message:
    """A checkpoint as it stands in another log, after its parts."""
    kept = message.extra[FIELD]
    if "z" not in kept:
        return message
    body = Body.of(message)
    old = [(ref, seq - ref[0]) for ref in body.refs()]
    for _, number in old:
        if number not in at:
            at[number] = batch.add(parts[number])
    own = batch.last + len(batch.records) + 1
    for ref, number in old:
        ref[0] = own - at[number]
    body.early, body.index = [own - number for number in written], None
    return record(message.role, {**kept, "z": body.squeezed()}, message_id=message.id)


def _with_role(message: Message, role: str) -> Message:
    if message.role == role:
        return message
    kept = {**message.extra[FIELD], "staged": message.role}
    return record(role, kept, message_id=message.id)


def _unstaged(message: Message) -> Message:
    kept = dict(message.extra[FIELD])
    return record(kept.pop("staged"), kept, message_id=message.id)
