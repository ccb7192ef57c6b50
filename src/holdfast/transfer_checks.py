"""What a line of an export may say: the border that a file from a stranger has to pass. Pure.

Every number is checked here, once, before anything is written. The words of an error come
without the line's number, which `transfer.Reader` puts before them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast import limits
from holdfast.codec import from_json, is_too_deep
from holdfast.commands import SUBLOGS, Facts
from holdfast.errors import LimitExceeded, UsageError
from holdfast.model import SessionState
from holdfast.tombstones import is_digest

NONSENSE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a line raises that is none."""
DIGEST_BYTES: Final = 16
_PARTS_OF_KEY: Final = 3


@dataclass(slots=True)
class Begun:
    """A session whose line was read; its records come next."""

    name: bytes
    facts: Facts
    """Without `bytes`, which are counted when all records are there."""
    keys: Sequence[tuple[bytes, int, int]]

    def row(self, at: int, seq: object, record: bytes) -> tuple[int, bytes]:
        """The record at some place from 0, with its number: they end at the session's last."""
        wanted = self.facts.last - self.facts.count + 1 + at
        if type(seq) is not int or seq != wanted:
            raise UsageError(
                f"its number must be {wanted}, not {reprlib.repr(seq)}: numbers follow one another, "
                f"and the last is {self.facts.last}"
            )
        if len(record) > limits.RECORD_BYTES_MAX:
            raise LimitExceeded(
                f"the record takes {len(record):,} bytes; {limits.RECORD_BYTES_MAX:,} is the most"
            )
        return wanted, record


def parsed(line: str) -> dict[str, Any]:
    """The JSON object of a line."""
    if not isinstance(line, str):
        raise UsageError(f"a line must be text, not {type(line).__name__}")
    if len(line) > limits.EXPORT_LINE_CHARS_MAX:
        raise LimitExceeded(f"a line has {limits.EXPORT_LINE_CHARS_MAX:,} characters at most")
    value = from_json(line)
    if not isinstance(value, dict):
        raise UsageError("it is no JSON object")
    if is_too_deep(value, line, limits.EXPORT_DEPTH_MAX):
        raise LimitExceeded(f"it is nested deeper than {limits.EXPORT_DEPTH_MAX} levels")
    return value


def begun(name: bytes, line: dict[str, Any]) -> Begun:
    """The line of a session."""
    _check_name(name)
    state = SessionState(line["state"])
    if is_digest(name) and state is not SessionState.FORGOTTEN:
        raise UsageError(f"a digest is in the place of the id, and the session is {state.value}")
    if state is SessionState.NEVER:
        raise UsageError("a session that never was is in no export")
    last = whole(line["last"], "last", 0, limits.NUMBER_MAX)
    count = whole(line["messages"], "messages", 0, last)
    if count and state is not SessionState.LIVE:
        raise UsageError(f"the session is {state.value} and has no messages any more")
    expires_ms = line["expires_at_ms"]
    if expires_ms is not None:
        whole(expires_ms, "expires_at_ms", 0, limits.EXPIRES_MS_MAX)
    ttl_ms = _ttl_ms(line["ttl_s"])
    if state is SessionState.FORGOTTEN and (ttl_ms, expires_ms) != (None, None):
        raise UsageError("the session is forgotten and does not expire any more")
    trimmed = whole(line.get("trimmed", 0), "trimmed", 0, last - count if count else 0)
    facts = Facts(state, last, count, 0, ttl_ms, expires_ms, trimmed)
    return Begun(name, facts, _keys(line["keys"], last))


def whole(value: object, what: str, low: int, high: int | None) -> int:
    """A whole number within bounds. True and 1.0 are none."""
    if type(value) is not int or value < low or (high is not None and value > high):
        upto = "" if high is None else f" to {high}"
        raise UsageError(
            f"{what} must be a whole number from {low}{upto}, not {reprlib.repr(value)}"
        )
    return value


def _check_name(name: bytes) -> None:
    """A session's, or that of a log beside one, or the digest of either."""
    if is_digest(name):
        return
    sublog = next((sublog for sublog in SUBLOGS if sublog and name.startswith(sublog)), b"")
    plain = name[len(sublog) :]
    plain.decode("utf-8", "surrogatepass")
    if not plain:
        raise UsageError("session must not be empty")
    if len(plain) > limits.SESSION_BYTES_MAX:
        raise LimitExceeded(f"session is longer than {limits.SESSION_BYTES_MAX} bytes")


def _ttl_ms(ttl_s: object) -> int | None:
    if ttl_s is None:
        return None
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float):
        raise UsageError(f"ttl_s must be seconds or null, not {reprlib.repr(ttl_s)}")
    if not 1 <= ttl_s * 1000 <= limits.TTL_MS_MAX:  # engines count milliseconds
        raise UsageError(
            f"ttl_s must lie between 0.001 and {limits.TTL_S_MAX}, not {reprlib.repr(ttl_s)}"
        )
    return round(ttl_s * 1000)


def _keys(found: object, last: int) -> list[tuple[bytes, int, int]]:
    """Each was used for messages of its own, so there are no more of them than numbers."""
    if not isinstance(found, list) or len(found) > last:
        raise UsageError(f"keys must be a list of at most {last}")
    keys = [_key(one, last) for one in found]
    if len({digest for digest, _, _ in keys}) < len(keys):
        raise UsageError("a key is there twice")
    return keys


def _key(found: object, last: int) -> tuple[bytes, int, int]:
    if not isinstance(found, list) or len(found) != _PARTS_OF_KEY:
        raise UsageError(f"a key is a digest and two numbers, not {reprlib.repr(found)}")
    digest = bytes.fromhex(found[0])
    if len(digest) != DIGEST_BYTES:
        raise UsageError(f"the digest of a key has {DIGEST_BYTES} bytes, not {len(digest)}")
    end = whole(found[2], "the last number of a key", 1, last)
    return digest, whole(found[1], "the first number of a key", 1, end), end
