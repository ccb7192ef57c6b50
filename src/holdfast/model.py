"""What goes in and what comes out: messages, acks, histories. All frozen."""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Self, overload

from holdfast import limits
from holdfast.errors import InvalidMessage, UsageError

OPENAI_FIELDS = ("role", "content")
RECORD_FIELDS = ("id", "role", "content", "at", "extra")


class Durability(enum.IntEnum):
    """What an acknowledged write survives. Each level includes those below it."""

    MEMORY = 0
    """Nothing: it is gone with the engine's process."""
    PROCESS = 1
    """SIGKILL of the application and of the engine."""
    DISK = 2
    """Power loss: it was on stable storage before the ack."""
    REPLICA = 3
    """Loss of the machine: another one has it too."""


class SessionState(enum.StrEnum):
    """Why a history is as it is: four different answers to "there is nothing here"."""

    NEVER = "never"
    """Nothing was ever written to it."""
    LIVE = "live"
    """It is there; a rewrite may have left it empty."""
    EXPIRED = "expired"
    """Its time to live is over."""
    FORGOTTEN = "forgotten"
    """It was erased by a forget."""


def _new_id() -> str:
    return os.urandom(16).hex()


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. It comes back from every backend equal to what went in.

    `role` is who speaks: `user`, `assistant`, `system`, `tool`, or any other text.
    `content` is text, a JSON list of parts, or None (a message that only calls tools).
    `id` is random unless it is given; nothing is looked up by it.
    `extra` keeps every other JSON field exactly. `created_at` is information only: never a
    key, a sort key or a version. It keeps the time and the UTC offset that it was given, not the
    name of the zone. `seq` is the number that the engine gave; it is None
    before the append and takes no part in comparison. `unknown` holds fields that a later
    release wrote and this one does not know; they are kept when the message is written again.
    """

    role: str
    content: str | list[Any] | None
    id: str = field(default_factory=_new_id, kw_only=True)
    created_at: datetime | None = field(default_factory=_now, kw_only=True)
    extra: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    unknown: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)
    seq: int | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        check_message(self)
        at = self.created_at
        if at is not None and (at.tzinfo is not UTC or type(at) is not datetime):
            object.__setattr__(self, "created_at", _with_fixed_offset(at))

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_openai(cls, message: Mapping[str, Any]) -> Self:
        """The message of an OpenAI chat dictionary; every further field goes into `extra`."""
        if not isinstance(message, Mapping) or "role" not in message:
            raise InvalidMessage("an OpenAI message is a mapping with a 'role'; nothing written")
        extra = {name: value for name, value in message.items() if name not in OPENAI_FIELDS}
        return cls(message["role"], message.get("content"), extra=extra)

    def to_openai(self) -> dict[str, Any]:
        """The OpenAI chat dictionary: role, content, and all of `extra`."""
        return {"role": self.role, "content": self.content, **self.extra}


def check_message(message: Message) -> None:
    """Raise `InvalidMessage` unless JSON can carry every field exactly."""
    if not isinstance(message.role, str) or not isinstance(message.id, str):
        raise InvalidMessage(
            f"role and id must be text, not {_kind(message.role)} and {_kind(message.id)}"
        )
    if isinstance(message.content, list):
        _check_json(message.content, "content", 1)
    elif message.content is not None and not isinstance(message.content, str):
        raise InvalidMessage(
            f"content must be text, a list of parts or None, not {_kind(message.content)}"
        )
    _check_created_at(message.created_at)
    if message.extra != {}:
        _check_fields("extra", message.extra)
    if message.unknown != {}:
        _check_fields("unknown", message.unknown)


def _check_fields(name: str, fields: object) -> None:
    if not isinstance(fields, dict):
        raise InvalidMessage(f"{name} must be a dict of JSON fields, not {_kind(fields)}")
    known = OPENAI_FIELDS if name == "extra" else RECORD_FIELDS
    if taken := [field for field in known if field in fields]:
        raise InvalidMessage(f"{name} may not hold {taken[0]!r}: that is a field of its own")
    _check_json(fields, name, 1)


def _check_created_at(created_at: object) -> None:
    if created_at is None:
        return
    if not isinstance(created_at, datetime) or created_at.utcoffset() is None:
        raise InvalidMessage(
            f"created_at must be a datetime with a time zone, or None, not {created_at!r}"
        )


def _with_fixed_offset(at: datetime) -> datetime:
    """The same wall clock and offset, which is what a record keeps.

    Python calls a time in an hour that a zone repeats or skips unequal to any other zone's, even
    to the same instant: with the zone kept, such a message would never equal what comes back.
    """
    return datetime.combine(at.date(), at.time(), timezone(at.utcoffset() or timedelta()))


def _check_json(value: object, where: str, depth: int) -> None:
    """Refuse what JSON would refuse, and what it would quietly change."""
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int | float):
        _check_number(value, where)
    elif depth > limits.JSON_DEPTH_MAX:
        raise InvalidMessage(f"{where} is nested deeper than {limits.JSON_DEPTH_MAX} levels")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_json(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise InvalidMessage(f"{where} has a {_kind(name)} as a field name; JSON has text")
            _check_json(item, f"{where}[{name!r}]", depth + 1)
    else:
        raise InvalidMessage(f"{where} is {_kind(value)}, which JSON cannot give back as it is")


def _check_number(value: float, where: str) -> None:
    if isinstance(value, int):
        if value.bit_length() > limits.INTEGER_BITS_MAX:
            raise InvalidMessage(
                f"{where} is an integer of more than {limits.INTEGER_BITS_MAX} bits"
            )
    elif not math.isfinite(value):
        raise InvalidMessage(f"{where} is {value}: JSON has no such number")


def _kind(value: object) -> str:
    return type(value).__name__


@dataclass(frozen=True, slots=True)
class Ack:
    """The engine has it. `first` and `last` are its numbers in `session`.

    `durability` is what it survives.

    A retry with the same key returns an ack equal to the first; `repeated` tells it apart.
    An empty rewrite has `last == first - 1`.
    """

    session: str
    first: int
    last: int
    durability: Durability
    token: str | None = field(default=None, compare=False)
    """Where a replica must have come to in order to show this write; None without replicas."""
    repeated: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A stored record that cannot be read: its number `seq`, and the `reason`. It hides no other."""

    seq: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class History(Sequence[Message]):
    """Messages of one session at one instant, oldest first, numbers ascending, none twice.

    It is a sequence of its `messages`. `state` says why there are none, where there are none.
    `damaged` names the records that could not be read. `last` is the number at which the
    session ended at that instant, whatever page was asked for: 0 where nothing is visible.
    Pass it as `expect` to append only if nobody wrote in between. `first_kept` is the number at which
    the session began at that instant, 0 where nothing is visible: a `Retention` has cut `trimmed`
    messages off before it. None were, if that is 0.
    """

    messages: tuple[Message, ...]
    damaged: tuple[DamagedRecord, ...] = ()
    last: int = 0
    state: SessionState = SessionState.LIVE
    first_kept: int = 0
    trimmed: int = 0

    def _repr_html_(self) -> str:
        """The messages as a table, for a notebook. Everything in it stays text."""
        from html import escape  # noqa: PLC0415 - needed only in a notebook

        rows = "".join(
            f"<tr><td>{one.seq or ''}</td><td>{escape(one.role)}</td>"
            f"<td>{escape(str(one.content))}</td></tr>"
            for one in self.messages
        )
        damaged = f", {len(self.damaged)} damaged" if self.damaged else ""
        return f"<b>{len(self)} messages, {self.state.value}{damaged}</b><table>{rows}</table>"

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __eq__(self, other: object) -> bool:
        """Equal to any list, tuple or history of the same messages and the same damage."""
        if isinstance(other, History):
            return self.messages == other.messages and self.damaged == other.damaged
        if isinstance(other, list | tuple):
            return not self.damaged and list(self.messages) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a session is kept: each append cuts off what is older, in the same write.

    `last` so many messages, and none that is older than `age_s` by the engine's clock; each may be
    left out. Only whole turns go: a turn begins with a message that is not an assistant's or a
    tool's, and a tool call and its result stay together. So up to a turn more than `last` may stay,
    and never fewer. What was appended last always stays, and so do summaries and memories.
    """

    last: int | None = None
    age_s: float | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.last, int) and not isinstance(self.last, bool)
        if self.last is not None and not (whole and 1 <= self.last <= limits.NUMBER_MAX):
            raise UsageError(f"Retention: last must be a whole number from 1, not {self.last!r}")
        timed = isinstance(self.age_s, int | float) and not isinstance(self.age_s, bool)
        if self.age_s is not None and not (timed and 0.001 <= self.age_s <= limits.TTL_S_MAX):  # noqa: PLR2004 - engines count milliseconds
            raise UsageError(
                f"Retention: age_s must lie between 0.001 and {limits.TTL_S_MAX}, not {self.age_s!r}"
            )
        if self.last is None and self.age_s is None:
            raise UsageError("Retention needs last or age_s; leave it out to keep everything")


@dataclass(frozen=True, slots=True)
class Erased:
    """What a forget removed from `session`: so many `messages`, so many `bytes`.

    `scrubbed`: no copy is left in the engine's own files either. Otherwise `left` names where copies
    are until when, and what ends that sooner. `memories` counts what was remembered beside the
    session, and its summaries. Backups and exports are yours; the id stays in the
    tombstone, or after `now=True` a digest of it.
    """

    session: str
    messages: int
    bytes: int
    scrubbed: bool
    memories: int = 0
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The receipt of a forget of many: which `sessions` it erased, and how much was in them.

    So many `messages` and `memories` (with summaries), of so many `bytes`.
    `before` more had been forgotten already, `kept` were written to lately, and of `unknown` an earlier
    release has not noted when: those were left alone. `left` names where copies are, as in `Erased`. After
    a kill the same call goes on with the rest; what it had erased before counts in `before`.
    """

    sessions: tuple[str, ...] = ()
    messages: int = 0
    memories: int = 0
    bytes: int = 0
    before: int = 0
    kept: int = 0
    unknown: int = 0
    left: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stat:
    """The `state` of one `session`. `last` is the last number ever given; it never goes back.

    `count` messages of so many `bytes` are visible. `ttl_s` is None where it lives for ever;
    otherwise `expires_at` is when it ends, unless a write restarts its time. `open_calls` counts
    the tool calls without a result, where that was asked for.
    """

    session: str
    state: SessionState
    last: int
    count: int
    bytes: int
    ttl_s: float | None
    expires_at: datetime | None
    open_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load wrote: so many `sessions`, so many `messages`.

    `present` sessions were there already, equal, and were left alone.
    """

    sessions: int
    messages: int
    present: int
    memories: int = 0
    """Records beside the sessions: what was remembered, and summaries."""


@dataclass(frozen=True, slots=True)
class Source:
    """Which messages something was made from (`first` to `last` of `session`), to be quoted."""

    session: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing that was recalled. Its text comes from the log, never from an index.

    `kind` is "message" or "memory": each has numbers of its own, and `seq` is that of this one in
    `session`. `text` is what was compared with the question, `message` the whole record, `meta` the
    fields that a memory was given. `score` is comparable within one answer only. `source` is what a
    memory was made from, where that was said.
    """

    session: str
    seq: int
    kind: str
    text: str
    score: float
    message: Message
    meta: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Recalled(Sequence[Hit]):
    """What was found, best first: a sequence of its `hits`. `model` made the vectors.

    `behind` records have not been looked at: the index lags. It is 0 unless there was more to catch up on than one call may take; ask again, or
    `wait_for`.
    """

    hits: tuple[Hit, ...]
    behind: int
    model: str

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Context:
    """A prompt within its budget, of one instant: system, memories, summary, newest turns.

    `messages` is all of it, in the order in which a model should read it, and `tokens` its size;
    `memories`, `summary` and `turns` are what it was made from. `left_out` are the numbers of visible
    messages that neither a turn nor the summary covers, in ranges. `behind` is as in `Recalled`,
    `last` as in `History`.
    """

    messages: tuple[Message, ...]
    tokens: int
    memories: tuple[Hit, ...] = ()
    summary: Message | None = None
    turns: tuple[Message, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    behind: int = 0
    last: int = 0

    def to_openai(self) -> list[dict[str, Any]]:
        """The messages as a chat API takes them."""
        return [message.to_openai() for message in self.messages]

    __hash__ = None  # type: ignore[assignment]
