"""What an operation asks of a backend, and what the backend answers: bytes and numbers only.

A command is one atomic step of one engine. Session names, keys and records arrive encoded,
so that no backend needs to know what a message is, and none can get its encoding wrong.
Nobody changes a command or a reply; they are not frozen because each append makes several.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from holdfast.errors import Conflict, UsageError
from holdfast.model import Durability, SessionState
from holdfast.secrets import SecretUrl

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

TTL_KEEP: Final = -1
"""Refresh by the session's own time to live; a session without one gets none."""
TTL_NEVER: Final = 0
"""From now on the session does not expire."""


MEMORIES: Final = b"\xffm"
SUMMARIES: Final = b"\xffs"
SUBLOGS: Final = (b"", MEMORIES, SUMMARIES)
"""What stands before the name of a session in the name of each of its logs."""


ERASED: Final = (
    b'{"v":1,"crc":"d43b6d62","msg":{"id":"erased","role":"erased","content":null,"at":null}}'
)
"""The record that stands where a memory was erased: a readable one that carries nothing.

It keeps the numbers of the others, and it is not taken for damage. It is in every store for ever.
"""


def sublogs_of(session: bytes) -> tuple[bytes, bytes]:
    """The logs beside a session: its memories, and its summaries.

    No UTF-8 holds the byte 255, so no session can have such a name, and no listing of
    sessions shows one.
    """
    return MEMORIES + session, SUMMARIES + session


class Command(Generic[R_co]):
    """One atomic step; `R` is the type of its reply."""

    __slots__ = ()
    operation: ClassVar[str]
    writes: ClassVar[bool] = False
    for_index: ClassVar[bool] = False
    """Whether it goes to the index, where that is not in the log's engine."""


@dataclass(slots=True)
class Written:
    """Numbers `first` to `last` are on `durability`; `repeated` if an earlier try wrote them."""

    first: int
    last: int
    durability: Durability
    repeated: bool = False
    token: str | None = None


Marks = bytes
"""What a session notes of its appends: see `Keep`."""


@dataclass(slots=True)
class Keep:
    """What an append cuts off in its own step: the numbers up to `floor`, with what an index here has.

    Nothing, where they are gone already. `floor` names messages for ever, since no number is given
    twice. To the marks of the session a word is added, `first-last:time` of this append. `marks` comes
    into the place of those before it, if they are as they were `seen`; None: no word is added.
    """

    floor: int
    seen: bytes | None = None
    marks: bytes = b""

    def mark(self, stored: bytes, first: int, last: int, now_ms: int) -> bytes:
        """The marks after the append. One more ms, because the present one has begun already."""
        before = self.marks if stored == self.seen else stored
        return before + b"%d-%d:%d " % (first, last, now_ms + 1)


@dataclass(slots=True)
class Append(Command[Written]):
    """Add records to the end; nothing, if `key` was used before. `Conflict` on `expect`."""

    operation: ClassVar[str] = "append"
    writes: ClassVar[bool] = True
    session: bytes
    records: Sequence[bytes]
    key: bytes | None = None
    expect: int | None = None
    ttl_ms: int = TTL_KEEP
    keep: Keep | None = None


@dataclass(slots=True)
class Rewrite(Command[Written]):
    """Put records in the place of all that is visible, under new numbers."""

    operation: ClassVar[str] = "rewrite"
    writes: ClassVar[bool] = True
    session: bytes
    records: Sequence[bytes]
    expect: int | None = None
    ttl_ms: int = TTL_KEEP


@dataclass(slots=True)
class Removed:
    """How much a forget erased, and where the engine's files are not clean of it yet."""

    messages: int
    bytes: int
    memories: int = 0
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class Derive(Command[Written]):
    """Add a record to the summaries of a session, made from its messages up to `source`.

    Nothing, if `key` was used before. `Conflict` if that message is not to be seen any more:
    what was forgotten must not return as a summary. It expires with the session: an append that
    moves the expiry of the session moves that of its summaries in the same step.
    """

    operation: ClassVar[str] = "summarize"
    writes: ClassVar[bool] = True
    session: bytes
    record: bytes
    key: bytes
    source: int


@dataclass(slots=True)
class Forget(Command[Removed]):
    """Erase all records; the last number and the used keys stay, so that nothing returns.

    In the same step the logs beside the session, and whatever an index in this engine holds.
    """

    operation: ClassVar[str] = "forget"
    writes: ClassVar[bool] = True
    session: bytes
    hide: bool = False
    """Leave a digest in the place of its name (holdfast.tombstones)."""
    lasts: tuple[int, int] | None = None
    """`Conflict` unless these are the last numbers of the session and of its memories."""


@dataclass(slots=True)
class Clean(Command[Removed]):
    """Take copies of what was erased out of the engine's files; the reply says where some are left."""

    operation: ClassVar[str] = "forget"
    writes: ClassVar[bool] = True
    full: bool = False
    """Also in ways that keep others out meanwhile."""


@dataclass(slots=True)
class EraseRecord(Command[Removed]):
    """Put `ERASED` in the place of one visible record, and drop what an index here has of it.

    Its number stays given and its key used. No `Extend` adds an entry of it any more.
    """

    operation: ClassVar[str] = "forget_memory"
    writes: ClassVar[bool] = True
    session: bytes
    number: int


@dataclass(slots=True)
class Slice:
    """Records of one instant, ascending. `end` is the last visible number, 0 if none.

    `floor` is the number before the first visible one; an append cut off `trimmed` before it.
    """

    state: SessionState
    end: int
    rows: Sequence[tuple[int, bytes]]
    floor: int = 0
    trimmed: int = 0


@dataclass(slots=True)
class Read(Command[Slice]):
    """Visible records with after < number < before: the newest `limit`, or the oldest if `forward`."""

    operation: ClassVar[str] = "history"
    session: bytes
    limit: int | None = None
    before: int | None = None
    after: int | None = None
    token: str | None = None
    """The token of an ack: what is read must be at least as new, from a replica too."""

    @property
    def forward(self) -> bool:
        """With `after`, a page grows from its lower end."""
        return self.after is not None


@dataclass(slots=True)
class ReadNumbers(Command[Sequence[tuple[int, bytes]]]):
    """The visible ones of these records, ascending; at one instant."""

    operation: ClassVar[str] = "recall"
    session: bytes
    numbers: Sequence[int]


@dataclass(slots=True)
class Facts:
    """What the engine knows of a session without reading its records."""

    state: SessionState
    last: int = 0
    count: int = 0
    bytes: int = 0
    ttl_ms: int | None = None
    expires_ms: int | None = None
    trimmed: int = 0
    now_ms: int = field(default=0, compare=False)
    marks: Marks = field(default=b"", compare=False)
    written_ms: int = field(default=0, compare=False)
    """When its newest message was written, by the engine's clock; 0: an earlier release wrote it."""

    @property
    def floor(self) -> int:
        """The number before the first that is there."""
        return self.last - self.count


def trimmed_before(floor: int, base: int, cut: int) -> int:
    """How many messages an append cut off: from `base` to `cut`, unless the floor has moved since."""
    return cut - base if cut and cut == floor else 0


@dataclass(slots=True)
class StatSession(Command[Facts]):
    """The facts of one session, at one instant."""

    operation: ClassVar[str] = "stat"
    session: bytes


@dataclass(slots=True)
class Names(Command[Sequence[bytes]]):
    """Session names after `after` that begin with `prefix`, ascending by bytes.

    Live ones only, or with `gone` the expired and forgotten too.
    """

    operation: ClassVar[str] = "sessions"
    prefix: bytes
    after: bytes | None
    limit: int
    gone: bool = False


@dataclass(slots=True)
class Copy:
    """A whole session, as it moves from one engine to another."""

    facts: Facts
    rows: Sequence[tuple[int, bytes]]
    keys: Sequence[tuple[bytes, int, int]]
    """(digest, first, last) of every key that was used."""


@dataclass(slots=True)
class ExportSession(Command[Copy]):
    """A whole session at one instant: what is visible, and what must never come back."""

    operation: ClassVar[str] = "export"
    session: bytes


def seen_expired(reply: object) -> Facts | Slice | None:
    """The part of a reply that says that a session has expired; None if it does not."""
    found = reply.facts if isinstance(reply, Copy) else reply
    is_expired = isinstance(found, Facts | Slice) and found.state is SessionState.EXPIRED
    return found if is_expired else None  # type: ignore[return-value]


@dataclass(slots=True)
class MarkExpired(Command[None]):
    """Note that a session, and its summaries, were seen expired: no clock shows them again."""

    operation: ClassVar[str] = "expire"
    writes: ClassVar[bool] = True
    session: bytes
    seen_ms: int


@dataclass(slots=True)
class ImportSession(Command[bool]):
    """Write a whole session under its old numbers; False if it is there already, see `is_there`.

    One whose time is over by the engine's clock is written as expired, without its records.
    `Conflict` if the session was ever used and is not the same, `UsageError` for numbers that
    no session can have.
    """

    operation: ClassVar[str] = "load"
    writes: ClassVar[bool] = True
    session: bytes
    copy: Copy


@dataclass(slots=True)
class Settings:
    """What `connect` was asked for."""

    url: SecretUrl
    namespace: bytes
    require: Durability
    replicas: tuple[SecretUrl, ...] = ()
    keys_kept_ms: int = 0  # 0: for ever


class Setup(Protocol):
    """What a backend found out about the engine when it was opened."""

    name: str
    durability: Durability
    """What every ack survives, at least."""

    def weakness(self, require: Durability) -> str:
        """Why more than `durability` cannot be kept, and the setting to change."""

    def risk(self) -> str | None:
        """What may take the data away later although each ack is true; None if nothing is seen."""


class Backend(Setup, Protocol):
    """Our store for one engine, behind the sync API. Safe to use from several threads."""

    def execute(self, command: Command[R]) -> R:
        """Carry out one command, or raise an error of the tree."""

    def close(self) -> None:
        """Finish what is under way and let go of the engine. Twice is once."""


class AsyncBackend(Setup, Protocol):
    """The same behind the async API."""

    def execute(self, command: Command[R]) -> Awaitable[R]:
        """Awaited, it carries out one command, or raises an error of the tree."""

    async def close(self) -> None:
        """Finish what is under way and let go of the engine. Twice is once."""


def check_expect(expect: int | None, end: int, *, operation: str, backend: str) -> None:
    """Raise `Conflict` unless the session ends at `expect`."""
    if expect is not None and expect != end:
        raise Conflict(
            f"the session ends at {end}, not at {expect}: another client wrote in between. "
            "Nothing was written. Read it again and decide again",
            operation=operation,
            backend=backend,
        )


def floor_of(copy: Copy, *, backend: str) -> int:
    """The number before the first row of a `ImportSession`; raises unless rows lead from there to the last.

    What a number may be is for the engine to refuse: a constraint, or the script that writes.
    """
    floor = copy.facts.last - len(copy.rows)
    if any(seq != wanted for wanted, (seq, _) in enumerate(copy.rows, floor + 1)):
        raise unfit("numbers of messages have a gap, or do not end at the last", backend=backend)
    if len({digest for digest, _, _ in copy.keys}) < len(copy.keys):
        raise unfit("a key is there twice", backend=backend)
    return floor


def unfit(why: str, *, backend: str) -> UsageError:
    """The refusal of a `ImportSession` that is no session."""
    return UsageError(
        f"no session can be like that ({why}); nothing was written of it",
        operation=ImportSession.operation,
        backend=backend,
    )


def is_there(there: Copy, wanted: Copy, *, backend: str) -> bool:
    """Whether a session that is to be put is there already; `Conflict` if another one is.

    It may have expired since: then nothing but its last number and its keys is left of it.
    """
    if _is_same(there.facts, wanted.facts) and sorted(there.keys) == sorted(wanted.keys):
        gone = there.facts.state is not SessionState.LIVE
        if gone or list(there.rows) == list(wanted.rows):
            return True
    raise Conflict(
        "a session of that name is there already, and differs. It was left as it is",
        operation=ImportSession.operation,
        backend=backend,
    )


def _is_same(there: Facts, wanted: Facts) -> bool:
    if there.state is not SessionState.EXPIRED:
        return there == wanted
    could_expire = wanted.state is SessionState.EXPIRED or wanted.expires_ms is not None
    return (
        (could_expire and wanted.state is not SessionState.FORGOTTEN)
        and (there.last, there.ttl_ms) == (wanted.last, wanted.ttl_ms)
        # Sweeping takes the expiry away.
        and (None in {there.expires_ms, wanted.expires_ms} or there.expires_ms == wanted.expires_ms)
    )


def written_since(*, backend: str) -> Conflict:
    """The refusal of a `Forget` of what was written to after it was looked at."""
    return Conflict(
        "it was written to since it was looked at. Nothing was erased",
        operation=Forget.operation,
        backend=backend,
    )


def orphaned(source: int, *, backend: str) -> Conflict:
    """The refusal of a `Derive` whose message is gone."""
    return Conflict(
        f"message {source} is not there any more: the session was forgotten, rewritten or has "
        "expired. Nothing was written",
        operation=Derive.operation,
        backend=backend,
    )
