"""Message to bytes and back, exactly. Pure.

A record is one JSON object, as bytes:

    {"v":1,"crc":"1c291ca3","msg":{"id":…,"role":…,"content":…,"at":…,"extra":{…}}}

`crc` is the CRC-32 of the bytes of `msg` as they stand. The bytes are UTF-8 in which lone
surrogates are allowed, so any Python text survives in any engine. A field of `msg` that
this release does not know is kept in `Message.unknown` and written again.

Version 0, from before the first release, was the bare OpenAI dictionary. It is read for
ever, and is the example that a later upgrade follows: add a reader to `READERS`, keep the
old ones.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from holdfast import limits
from holdfast.errors import (
    Damaged,
    FormatTooNew,
    HoldfastError,
    InvalidMessage,
    LimitExceeded,
    StoredDataError,
)
from holdfast.model import OPENAI_FIELDS, Message, check_message

VERSION: Final = 1

_HEAD = b'{"v":1,"crc":"'
_MIDDLE = b'","msg":'
_CRC_END = len(_HEAD) + 8
_BODY = _CRC_END + len(_MIDDLE)
_ANY_HEAD = re.compile(rb'\{"v":(\d{1,9}),')

_to_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_quoted = json.encoder.encode_basestring


def _no_number(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits)


from_json: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite).decode
"""The value of a JSON text; ValueError for numbers that JSON does not have, too."""


def is_too_deep(value: object, text: str | bytes, depth_max: int) -> bool:
    """Whether the value of a text is nested deeper than that."""
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) < depth_max:  # type: ignore[arg-type]
        return False  # nearly every text, at the price of a glance
    level: list[Any] = [value]
    for _ in range(depth_max + 1):
        if not level:  # brackets in a text, as in most programs
            return False
        inside: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inside += one.values()
            elif isinstance(one, list):
                inside += one
        level = inside
    return bool(level)


def json_bytes(value: Any) -> bytes:
    """Compact JSON in which lone surrogates are allowed; equal values give equal bytes."""
    return _to_json(value).encode("utf-8", "surrogatepass")


def json_value(data: bytes) -> Any:
    """The inverse of `json_bytes`; ValueError where it is none."""
    return from_json(data.decode("utf-8", "surrogatepass"))


def encode(message: Message) -> bytes:
    """The record of a message, in the current version. It decodes to an equal message."""
    if message.extra or message.unknown or isinstance(message.content, list):
        check_message(message)  # again: a list or a dict may have changed since it was made
    try:
        body = _body(message).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"JSON cannot carry this message: {error}") from error
    if len(body) > limits.MESSAGE_BYTES_MAX:
        raise LimitExceeded(
            f"the message takes {len(body):,} bytes; {limits.MESSAGE_BYTES_MAX:,} is the most. "
            "Nothing was written. Split it, or store a reference to the large part"
        )
    return b"%b%08x%b%b}" % (_HEAD, zlib.crc32(body), _MIDDLE, body)


def _body(message: Message) -> str:
    """The JSON of `msg`; written out by hand because every append waits for it."""
    content, at = message.content, message.created_at
    body = (
        f'{{"id":{_quoted(message.id)},"role":{_quoted(message.role)},"content":'
        f"{_quoted(content) if isinstance(content, str) else _to_json(content)},"
        f'"at":{"null" if at is None else _quoted(at.isoformat())}'
    )
    if message.extra:
        body += f',"extra":{_to_json(message.extra)}'
    if message.unknown:
        body += f",{_to_json(message.unknown)[1:-1]}"
    return body + "}"


def decode(record: bytes, seq: int | None = None) -> Message:
    """The message of a record of any known version; `Damaged` or `FormatTooNew` otherwise."""
    try:
        if record.startswith(_HEAD):
            return _read_v1(record, seq)
        version = record_version(record)
        if version in READERS:
            return READERS[version](record, seq)
    except StoredDataError:
        raise
    except HoldfastError as error:  # what a stored message lacks is damage, by any writer
        raise Damaged(str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"not a readable record ({type(error).__name__}: {error})") from error
    if version > VERSION:
        raise FormatTooNew(
            f"written in record version {version}; this release reads up to {VERSION}. Upgrade"
        )
    raise Damaged(f"record version {version} never existed")


def record_version(record: bytes) -> int:
    """The version that a record names; 0 where it names none."""
    found = _ANY_HEAD.match(record)
    return int(found[1]) if found else 0


def _read_v1(record: bytes, seq: int | None) -> Message:
    body = record[_BODY:-1]
    if record[-1:] != b"}":
        raise Damaged("the record is cut short")
    if record[:_BODY] != b"%b%08x%b" % (_HEAD, zlib.crc32(body), _MIDDLE):
        raise Damaged("the checksum does not match: the bytes are not those that were written")
    fields = from_json(body.decode("utf-8", "surrogatepass"))
    # Anybody can compute a checksum: a loaded file may hold records that no release wrote.
    if is_too_deep(fields, body, limits.JSON_DEPTH_MAX + 1):
        raise Damaged(f"the message is nested deeper than {limits.JSON_DEPTH_MAX} levels")
    role, content, name = fields.pop("role"), fields.pop("content"), fields.pop("id")
    at, extra = fields.pop("at"), fields.pop("extra", None) or {}
    created_at = None if at is None else datetime.fromisoformat(at)
    if (
        not (type(role) is type(name) is str and type(extra) is dict)
        or not (content is None or type(content) in {str, list})
        or (created_at is not None and created_at.tzinfo is None)
        or (extra and not extra.keys().isdisjoint(OPENAI_FIELDS))
    ):
        raise Damaged("a field of the record is of a kind that no message has")
    return _trusted(role, content, name, created_at, extra, fields, seq)


def _read_v0(record: bytes, seq: int | None) -> Message:
    """The bare OpenAI dictionary: no id, no time, no checksum."""
    fields = json_value(record)
    if not isinstance(fields, dict):
        raise Damaged("not a readable record (no JSON object)")
    message = Message.from_openai(fields)
    return _trusted(
        message.role, message.content, f"v0-{zlib.crc32(record):08x}", None, message.extra, {}, seq
    )


READERS: dict[int, Callable[[bytes, int | None], Message]] = {0: _read_v0, 1: _read_v1}

_set = object.__setattr__


def _trusted(*values: Any) -> Message:
    """A message from fields that were checked when they were written (and by the checksum)."""
    message = Message.__new__(Message)
    for name, value in zip(_SLOTS, values, strict=True):
        _set(message, name, value)
    return message


_SLOTS = ("role", "content", "id", "created_at", "extra", "unknown", "seq")
