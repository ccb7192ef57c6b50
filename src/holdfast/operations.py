"""Every operation once: pure functions on both sides of a command.

Before it: check the arguments and build the command. After it: turn the reply into the
result. Nothing here waits, so the sync and the async API call the same functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from holdfast import codec, limits
from holdfast.commands import (
    SUBLOGS,
    TTL_KEEP,
    TTL_NEVER,
    Append,
    Facts,
    Forget,
    ImportSession,
    Names,
    Read,
    ReadNumbers,
    Removed,
    Rewrite,
    Slice,
    StatSession,
    Written,
)
from holdfast.errors import InvalidMessage, LimitExceeded, StoredDataError, UsageError
from holdfast.model import Ack, DamagedRecord, Erased, History, Message, Retention, Stat
from holdfast.tombstones import DIGESTS
from holdfast.transfer import SessionCopy
from holdfast.turns import Turns, check_turns, open_calls, shown

Rows = Sequence[tuple[int, bytes]]


def append(
    session: str,
    messages: Message | Iterable[Message],
    key: str | None,
    expect: int | None,
    ttl_ms: int,
) -> Append:
    """Of `Store.append`."""
    if isinstance(messages, Message):
        records: Sequence[bytes] = (codec.encode(messages),)
    else:
        records = encode_batch(messages)
    if not records:
        raise UsageError("append needs at least one message; nothing was written")
    return Append(
        session_bytes(session),
        records,
        None if key is None else key_digest(key),
        None if expect is None else check_number(expect),
        ttl_ms,
    )


def rewrite(
    session: str, messages: Message | Iterable[Message], expect: int | None, ttl_ms: int
) -> Rewrite:
    """Of `Store.rewrite`."""
    return Rewrite(session_bytes(session), encode_batch(messages), check_number(expect), ttl_ms)


def ack(session: str, written: Written) -> Ack:
    """What an append or a rewrite returns."""
    return Ack(
        session,
        written.first,
        written.last,
        written.durability,
        written.token,
        repeated=written.repeated,
    )


def read(
    session: str,
    limit: int | None,
    before: int | None,
    after: int | None,
    seen: Ack | None = None,
    turns: Turns = "all",
) -> Read:
    """Of `Store.history`."""
    check_turns(turns)
    return Read(
        session_bytes(session),
        check_number(limit, "limit"),
        check_number(before, "before"),
        check_number(after, "after"),
        ack_token(seen),
    )


def history(cut: Slice, turns: Turns = "all") -> History:
    """The messages of a cut; what cannot be read is named beside them."""
    messages, damaged = _decoded(cut.rows)
    first, trimmed = (cut.floor + 1, cut.trimmed) if cut.end else (0, 0)
    return History(shown(messages, turns), damaged, cut.end, cut.state, first, trimmed)


def pick(session: str, numbers: Iterable[int]) -> ReadNumbers:
    """Of `Store.messages`."""
    wanted = {check_number(number, "a number") or 0 for number in numbers}
    return ReadNumbers(session_bytes(session), sorted(wanted))


def picked(rows: Rows) -> History:
    """What `Store.messages` returns."""
    return History(*_decoded(rows))


def _decoded(rows: Rows) -> tuple[tuple[Message, ...], tuple[DamagedRecord, ...]]:
    messages: list[Message] = []
    damaged: list[DamagedRecord] = []
    for seq, record in rows:
        try:
            messages.append(codec.decode(record, seq))
        except StoredDataError as error:
            damaged.append(DamagedRecord(seq, str(error)))
    return tuple(messages), tuple(damaged)


def forget(session: str, now: object) -> Forget:
    """Of `Store.forget`."""
    check_now(now)
    return Forget(session_bytes(session), hide=bool(now))


def check_now(now: object) -> None:
    """Refuse what says nothing about the files."""
    if not isinstance(now, bool) and now != "full":
        raise UsageError(f'now must be True, False or "full", not {now!r}; nothing was sent')


def erased(session: str, removed: Removed) -> Erased:
    """What a forget returns."""
    return Erased(
        session,
        removed.messages,
        removed.bytes,
        scrubbed=not removed.left,
        memories=removed.memories,
        left=removed.left,
    )


def stat_session(session: str) -> StatSession:
    """Of `Store.stat`."""
    return StatSession(session_bytes(session))


def stat(session: str, facts: Facts, said: Slice | None = None) -> Stat:
    """What `Store.stat` returns."""
    calls = None if said is None else len(open_calls(_decoded(said.rows)[0]))
    return Stat(
        session,
        facts.state,
        facts.last,
        facts.count,
        facts.bytes,
        None if facts.ttl_ms is None else facts.ttl_ms / 1000,
        _expires_at(facts),
        calls,
    )


def names(prefix: str, after: str | None, limit: int) -> Names:
    """Of `Store.sessions`: live ones."""
    return _names(prefix, after, limit)


def exported_logs(prefix: str) -> Sequence[bytes]:
    """What the names of logs in an export begin with. A digest begins with no prefix of a session."""
    return SUBLOGS if prefix else (*SUBLOGS, *DIGESTS)


def all_names(sublog: bytes, prefix: str, after: bytes | None) -> Names:
    """A page of every sublog of a kind that left a trace: live, expired and forgotten."""
    begin = sublog + text_bytes(prefix, "prefix", limits.SESSION_BYTES_MAX)
    return Names(begin, after, limits.EXPORT_PAGE_SESSIONS, gone=True)


def texts(names: Sequence[bytes]) -> list[str]:
    """Session ids as they were given."""
    return [name.decode("utf-8", "surrogatepass") for name in names]


def import_session(moved: SessionCopy) -> ImportSession:
    """Write a whole log under its old numbers; `transfer.Reader` has checked it."""
    return ImportSession(moved.name, moved.copy)


def _names(prefix: str, after: str | None, limit: int) -> Names:
    check_number(limit, "limit")
    if limit > limits.PAGE_SESSIONS_MAX:
        raise LimitExceeded(f"limit is {limit}; {limits.PAGE_SESSIONS_MAX} is the most")
    return Names(
        text_bytes(prefix, "prefix", limits.SESSION_BYTES_MAX),
        None if after is None else text_bytes(after, "after", limits.SESSION_BYTES_MAX),
        limit,
    )


def _expires_at(facts: Facts) -> datetime | None:
    if facts.expires_ms is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=facts.expires_ms)


# Arguments: each check says what is wrong, and nothing has been sent yet.


def text_bytes(value: object, name: str, bytes_max: int) -> bytes:
    """The bytes of a text argument; every Python text has its own."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {type(value).__name__}; nothing was sent")
    if len(value) > bytes_max:  # a character is at least a byte: do not encode 10 MB to refuse it
        raise LimitExceeded(f"{name} is longer than {bytes_max} bytes; nothing was sent")
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > bytes_max:
        raise LimitExceeded(f"{name} is longer than {bytes_max} bytes; nothing was sent")
    return data


def session_bytes(session: object) -> bytes:
    """The bytes of a session id, which must not be empty."""
    if isinstance(session, str) and 0 < len(session) <= limits.SESSION_BYTES_MAX // 4:
        return session.encode("utf-8", "surrogatepass")  # no character takes more than four
    if session == "":
        raise UsageError("session must not be empty; nothing was sent")
    return text_bytes(session, "session", limits.SESSION_BYTES_MAX)


def key_digest(key: str) -> bytes:
    """What is kept of an idempotency key: enough to know it again, nothing to read."""
    data = text_bytes(key, "key", limits.KEY_BYTES_MAX)
    if not data:
        raise UsageError("key must not be empty; leave it out instead; nothing was sent")
    return hashlib.blake2b(data, digest_size=16).digest()


def ack_token(seen: object) -> str | None:
    """The token of an ack that a read must not be older than; "" for an ack that has none."""
    if seen is None:
        return None
    if not isinstance(seen, Ack):
        raise UsageError(f"seen must be an Ack, not {type(seen).__name__}; nothing was sent")
    return seen.token or ""


def check_number(value: int | None, name: str = "expect") -> int | None:
    """A whole number that is not negative, or None."""
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name} must be a whole number from 0, not {value!r}; nothing was sent")
    return min(value, limits.NUMBER_MAX)


def ttl_ms(ttl_s: float | None) -> int:
    """A time to live as engines count it."""
    if ttl_s is None:
        return TTL_NEVER
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float):
        raise UsageError(f"ttl_s must be seconds or None, not {ttl_s!r}; nothing was sent")
    if not 0.001 <= ttl_s <= limits.TTL_S_MAX:  # noqa: PLR2004 - engines count milliseconds
        raise UsageError(
            f"ttl_s must lie between 0.001 and {limits.TTL_S_MAX}, not {ttl_s!r}; nothing was sent"
        )
    return round(ttl_s * 1000)


def default_ttl_ms(ttl_s: float | None) -> int:
    """The store's own time to live, for writes that name none."""
    return TTL_KEEP if ttl_s is None else ttl_ms(ttl_s)


def kept_ms(keys_kept_s: float | None) -> int:
    """How long used keys and tombstones are kept, as engines count it; 0 for ever."""
    if keys_kept_s is None:
        return 0
    is_number = isinstance(keys_kept_s, int | float) and not isinstance(keys_kept_s, bool)
    if not is_number or not 1 <= keys_kept_s <= limits.TTL_S_MAX:
        raise UsageError(
            f"keys_kept_s must be seconds from 1 to {limits.TTL_S_MAX}, or None for ever, not "
            f"{keys_kept_s!r}; nothing was sent"
        )
    return round(keys_kept_s * 1000)


def check_retention(retention: object) -> Retention | None:
    """What is to be kept of a session; None for all of it."""
    if retention is None or isinstance(retention, Retention):
        return retention
    raise UsageError(f"retention must be a Retention or None, not {retention!r}; nothing was sent")


def encode_batch(messages: Message | Iterable[Message]) -> Sequence[bytes]:
    """The records of one atomic batch, within the limits."""
    if isinstance(messages, Message):
        return (codec.encode(messages),)
    if isinstance(messages, str | bytes | dict) or not isinstance(messages, Iterable):
        raise InvalidMessage(
            f"expected a Message or several, not {type(messages).__name__}; nothing was sent. "
            "Message('user', text) makes one, Message.from_openai(dict) converts one"
        )
    return _encode_all(messages)


def _encode_all(messages: Iterable[Message]) -> list[bytes]:
    records: list[bytes] = []
    size = 0
    for message in messages:
        if not isinstance(message, Message):
            raise InvalidMessage(
                f"a batch holds messages, not {type(message).__name__}; nothing was sent"
            )
        records.append(codec.encode(message))
        size += len(records[-1])
        if len(records) > limits.BATCH_MESSAGES_MAX or size > limits.BATCH_BYTES_MAX:
            raise LimitExceeded(
                f"a batch holds at most {limits.BATCH_MESSAGES_MAX:,} messages and "
                f"{limits.BATCH_BYTES_MAX:,} bytes; nothing was sent"
            )
    return records
