"""The record of what clients did and saw: written while it happens, read back to be judged.

A history is a file of JSON Lines: a header, then events in the order of time. An operation is
an `invoke` and at most one completion: `ok`, `fail` (it did not happen) or `info` (nobody
knows). The format is public: docs/reference/history-format.md.
"""

from __future__ import annotations

import gc
import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from holdfast.errors import NotAHistory
from holdfast.verify import _lines
from holdfast.verify.blocks import Block
from holdfast.verify.promises import PROMISES

VERSION: Final = 1
NEVER_NS: Final = 2**63 - 1
"""The completion of an operation that may still take effect at any later time."""

OPERATIONS: Final = frozenset({"append", "history", "forget"})
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_BLOCK_BYTES: Final = 1 << 20
_LINE_BYTES_MAX: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class Header:
    """What was under test. `claims` of None means that every promise is claimed."""

    target: str
    ttl_s: float | None = None
    clock_error_s: float = 0.0
    claims: tuple[str, ...] | None = None
    kept_last: int | None = None
    """The store cuts off old messages, by whole appends, and keeps so many at least ..."""
    kept_age_s: float | None = None
    """... or those that are younger."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line after the header. What does not apply to its type stays None or empty."""

    type: str
    time_ns: int
    op: int | None = None
    process: int | str | None = None
    f: str | None = None
    session: str | None = None
    messages: tuple[str, ...] | None = None
    limit: int | None = None
    seqs: tuple[int, ...] | None = None
    key: str | None = None
    name: str | None = None
    closes: tuple[int, ...] = ()
    landed: bool = True


@dataclass(slots=True)
class Operation:
    """An invoke and its completion in one. Ids stay JSON text until they are needed."""

    number: int
    process: int | str | None
    f: str
    session: str
    invoked_ns: int
    completed_ns: int
    status: str
    messages: bytes
    limit: int | None
    seqs: list[int] | None
    key: str | None
    line: int

    def ids(self) -> list[str]:
        """The ids that it wrote or returned, oldest first; `NotAHistory` if they are none."""
        try:
            return _DECODER.ids(self.messages)
        except (ValueError, RecursionError) as error:
            raise NotAHistory("`messages` must be a list of strings", line=self.line) from error


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, where it stands in time, and whether it was proven to have landed."""

    name: str
    time_ns: int
    landed: bool


@dataclass(slots=True)
class Session:
    """Everything that was done to one session, each list in the order of the invokes."""

    name: str
    appends: list[Operation] = field(default_factory=list)
    reads: list[Operation] = field(default_factory=list)
    forgets: list[Operation] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """A whole history. `writers` gives for each id the first append that may have written it.

    `completed` counts operations by what they were and how they ended, `numbered` names the
    sessions for which the store gave numbers.
    """

    header: Header
    operations: dict[int, Operation] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    writers: dict[str, Operation] = field(default_factory=dict)
    completed: Counter[tuple[str, str]] = field(default_factory=Counter)
    numbered: set[str] = field(default_factory=set)
    batches: int = 0
    retries: int = 0
    began_ns: dict[int | str | None, int] = field(default_factory=dict)  # of each process


class HistoryWriter(Block):
    """Appends events to a file, each whole and at once, so that SIGKILL loses none written.

    Safe for several threads, and for several processes that each open it with `header=None`.
    The order of time is the caller's business: the reader refuses a file without it.
    """

    def __init__(self, path: Path, header: Header | None) -> None:
        fresh = 0 if header is None else os.O_CREAT | os.O_EXCL
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | fresh, 0o644)
        self._turn = threading.Lock()
        if header is not None:
            self._write(header_json(header))

    def append(self, *events: Event) -> None:
        """Write them. When this returns, the death of this process cannot undo it."""
        self._write(*map(event_json, events))

    def close(self) -> None:
        """Close the file. Nothing was waiting to be written."""
        os.close(self._file)

    def _write(self, *values: dict[str, Any]) -> None:
        rest = memoryview("".join(f"{_ENCODER.encode(value)}\n" for value in values).encode())
        with self._turn:
            while rest:
                rest = rest[os.write(self._file, rest) :]


def header_json(header: Header) -> dict[str, Any]:
    """The first line of a history file."""
    claims = None if header.claims is None else list(header.claims)
    kept = {"kept_last": header.kept_last, "kept_age_s": header.kept_age_s}
    return {
        "holdfast_history": VERSION,
        "target": header.target,
        "ttl_s": header.ttl_s,
        "clock_error_s": header.clock_error_s,
        "claims": claims,
        **{name: value for name, value in kept.items() if value is not None},
    }


def event_json(event: Event) -> dict[str, Any]:
    """An event as its line, without the fields that do not apply."""
    value = {name: item for name in event.__slots__ if (item := getattr(event, name)) is not None}
    if event.type != "fault":
        del value["closes"]
    if event.landed:
        del value["landed"]
    return value


def write_history(path: Path, header: Header, events: Iterable[Event]) -> None:
    """Write a whole history, events in the order of time whatever order they come in."""
    with HistoryWriter(path, header) as writer:
        writer.append(*sorted(events, key=lambda event: event.time_ns))


def read_history(path: Path) -> History:
    """The history in a file, read in blocks; `NotAHistory` names the first line that is wrong."""
    try:
        # A pipe without a writer would be waited for, and a terminal or a device has no end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAHistory("cannot be read: no regular file; write the history to a file first")
        with path.open("rb") as file, collector_at_rest(), _lines.unchanged(file):
            return _build(_blocks(file))
    except OSError as error:
        raise NotAHistory(f"cannot be read: {error}") from error


def parse_history(lines: Iterable[bytes]) -> History:
    """The history in these lines, each with its newline; for what is not a file."""
    return _build(enumerate(lines, 1))


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No garbage collection inside: a history is millions of objects, and none in a cycle.

    Walking them again and again took longer than everything else that reading does.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _build(blocks: Iterator[tuple[int, bytes]]) -> History:
    _, first = next(blocks, (1, b""))
    builder = _Builder(_header(first))
    for number, line in _lines.numbered(blocks, _DECODER):
        builder.add(number, line)
    return builder.history


def _blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The header alone, then blocks of whole lines, each with the number of its first line."""
    yield 1, _line(file, 1, min(_BLOCK_BYTES, _LINE_BYTES_MAX))
    number = 2
    while block := file.read(_BLOCK_BYTES):
        block += _line(file, number + block.count(b"\n"), _LINE_BYTES_MAX)
        yield number, block
        number += block.count(b"\n")


def _line(file: BinaryIO, number: int, bytes_max: int) -> bytes:
    """The rest of the line; one without an end would take all the memory there is."""
    line = file.readline(bytes_max)
    if len(line) == bytes_max and not line.endswith(b"\n"):
        raise NotAHistory(f"longer than {bytes_max} bytes", line=number)
    return line


def _header(text: bytes) -> Header:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAHistory(f"not the header of a history: {error}", line=1) from error
    if not isinstance(value, dict) or "holdfast_history" not in value:
        raise NotAHistory('a history begins with {"holdfast_history": 1, …}', line=1)
    found = value["holdfast_history"]
    if found is True or found != VERSION:
        raise NotAHistory(f"version {found!r:.40}; this release reads version {VERSION}", line=1)
    return Header(
        target=_text(value.get("target", "")),
        ttl_s=_seconds(value.get("ttl_s"), "ttl_s"),
        clock_error_s=_seconds(value.get("clock_error_s"), "clock_error_s") or 0.0,
        claims=_claims(value.get("claims")),
        kept_last=_count(value.get("kept_last")),
        kept_age_s=_seconds(value.get("kept_age_s"), "kept_age_s"),
    )


def _count(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise NotAHistory("`kept_last` must be a whole number from 1", line=1)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise NotAHistory("`target` must be a string", line=1)
    return value


def _seconds(value: object, name: str) -> float | None:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value < NEVER_NS / 1e9
    ):
        raise NotAHistory(f"`{name}` must be a number of seconds, or null", line=1)
    return float(value)


def _claims(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise NotAHistory("`claims` must be a list of promises, or null", line=1)
    unknown = [item for item in value if item.replace("_", "-") not in PROMISES]
    if unknown:
        known = ", ".join(PROMISES)
        raise NotAHistory(f"`claims`: no promise {unknown[0]!r:.40}; there are: {known}", line=1)
    return tuple(value)


class _Builder:
    """Puts events together into operations, and refuses what no run can have recorded."""

    def __init__(self, header: Header) -> None:
        self.history = History(header)
        self._last_ns = 0
        self._open: dict[int, Operation] = {}
        self._closed: set[int] = set()
        self._keys: dict[tuple[str, str], Operation] = {}

    def add(self, number: int, line: _lines.Line) -> None:
        """Take the next event."""
        if not 0 <= line.time_ns < NEVER_NS:
            raise NotAHistory("`time_ns` is negative or beyond 64 bits", line=number)
        if line.time_ns < self._last_ns:
            raise NotAHistory("out of order: its time is before the line above", line=number)
        self._last_ns = line.time_ns
        kind = line.type
        if kind == "invoke":
            self._invoke(number, line)
        elif kind in ("ok", "fail", "info"):
            self._complete(number, line)
        elif kind == "fault":
            self._fault(number, line)
        else:
            raise NotAHistory(f"unknown type {kind!r:.40}", line=number)

    def _invoke(self, number: int, line: _lines.Line) -> None:
        op, f, session = line.op, line.f, line.session
        if op is None or session is None or f is None or f not in OPERATIONS:
            _refuse_invoke(number, line)
        if op in self.history.operations:
            raise NotAHistory(f"operation {op} was invoked before", line=number)
        operation = Operation(
            op, line.process, f, session, line.time_ns, NEVER_NS, "info",
            b"", line.limit, None, line.key, number,
        )  # fmt: skip
        self.history.operations[op] = self._open[op] = operation
        home = self.history.sessions.get(session)
        if home is None:
            home = self.history.sessions[session] = Session(session)
        if f == "append":
            operation.messages = bytes(line.messages)
            self._claim_ids(operation)
            home.appends.append(operation)
        elif f == "history":
            if line.limit is not None and line.limit < 0:
                raise NotAHistory("`limit` is negative", line=number)
            home.reads.append(operation)
        else:
            home.forgets.append(operation)

    def _claim_ids(self, operation: Operation) -> None:
        """Record who writes which id. An id is written once, or again under the same key."""
        writers = self.history.writers
        ids = operation.ids()
        again: Operation | None = None
        for message in ids:
            first = writers.setdefault(message, operation)
            if first is operation or first is again:
                continue
            if first.status == "fail":
                writers[message] = operation
            elif _same_attempt(first, operation):
                again = first  # said of all of its messages at once
            else:
                raise NotAHistory(
                    f"message {message!r} was already written by operation {first.number}; "
                    "only a retry of the same messages with the same key may do so",
                    line=operation.line,
                )
        if operation.key is not None:
            first = self._keys.setdefault((operation.session, operation.key), operation)
            self.history.retries += first is not operation
            if first.ids() != ids:
                raise NotAHistory(
                    f"key {operation.key!r} was used for other messages by operation "
                    f"{first.number}",
                    line=operation.line,
                )
        self.history.batches += len(ids) > 1
        if len(set(ids)) < len(ids):
            raise NotAHistory("one batch holds a message twice", line=operation.line)

    def _complete(self, number: int, line: _lines.Line) -> None:
        if line.op is None:
            raise NotAHistory("a completion needs `op`", line=number)
        operation = self._open.pop(line.op, None)
        if operation is None:
            raise NotAHistory(f"completion of {line.op}, which is not in flight", line=number)
        if line.f not in (None, operation.f) or line.session not in (None, operation.session):
            raise NotAHistory(f"completion of {line.op} differs from its invoke", line=number)
        kind = line.type
        if kind == "info":
            return
        if line.op in self._closed:
            raise NotAHistory(f"operation {line.op} was closed by a fault before", line=number)
        operation.status = kind
        operation.completed_ns = line.time_ns
        self.history.completed[operation.f, kind] += 1
        if kind == "ok":
            self._answer(number, line, operation)

    def _answer(self, number: int, line: _lines.Line, operation: Operation) -> None:
        if operation.f == "history":
            operation.messages = bytes(line.messages)
            operation.line = number
            if operation.messages[:1] != b"[":
                raise NotAHistory("`messages` must be a list of strings", line=number)
        if line.seqs is not None:
            operation.seqs = line.seqs
            self.history.numbered.add(operation.session)
            if operation.f == "forget" or len(line.seqs) != len(operation.ids()):
                raise NotAHistory("`seqs` and `messages` differ in length", line=number)

    def _fault(self, number: int, line: _lines.Line) -> None:
        if line.name is None:
            raise NotAHistory("a fault needs a `name`", line=number)
        self.history.faults.append(Fault(line.name, line.time_ns, line.landed))
        for op in line.closes:
            operation = self.history.operations.get(op)
            if operation is None:
                raise NotAHistory(f"closes operation {op}, which was never invoked", line=number)
            if operation.status == "info" and op not in self._closed:
                operation.completed_ns = line.time_ns
                self._closed.add(op)


def _same_attempt(first: Operation, again: Operation) -> bool:
    return (
        first.key is not None
        and first.key == again.key
        and first.session == again.session
        and first.ids() == again.ids()
    )


def _refuse_invoke(number: int, line: _lines.Line) -> NoReturn:
    if line.op is None or line.session is None:
        raise NotAHistory("an invoke needs `op`, `f` and `session`", line=number)
    raise NotAHistory(f"unknown operation {line.f!r:.40}", line=number)


_DECODER: Final = _lines.decoder()
