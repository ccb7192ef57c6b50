"""Exports written by hand: sound ones, and every way in which one can be wrong."""

from __future__ import annotations

import functools
import json
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

NUMBER_MAX = 4294967295
"""The last number of a session, as docs/contract.md says."""
DIGEST = "00112233445566778899aabbccddeeff"
PAST_MS = 1_600_000_000_000
"""Some day in 2020."""
FUTURE_MS = 32_503_680_000_000
"""The year 3000."""

Line = dict[str, Any]


def head(name: str, count: int, **more: Any) -> Line:
    """The line of a session with so many messages, numbered from 1."""
    plain = {"session": name, "state": "live", "last": count, "ttl_s": None}
    return {**plain, "expires_at_ms": None, "keys": [], "messages": count, **more}


def row(seq: Any, text: str) -> Line:
    """A message in a record of version 0, which has no checksum."""
    return {"seq": seq, "record": {"role": "user", "content": text}}


def session(name: str, texts: Sequence[str], **more: Any) -> list[Line]:
    """A whole session; the numbers of its messages end at `last`."""
    about = head(name, len(texts), **more)
    first = about["last"] - len(texts) + 1
    return [about, *(row(first + at, text) for at, text in enumerate(texts))]


def export(*sessions: Sequence[Line]) -> list[str]:
    """Sessions as the lines of a file."""
    lines: list[Line] = [{"holdfast_export": 1}]
    for one in sessions:
        lines += one
    lines.append({"end": True, "sessions": len(sessions)})
    return [json.dumps(line) for line in lines]


def _numbered(*numbers: Any, **more: Any) -> list[Line]:
    about = head("evil", len(numbers), **{"last": numbers[-1], **more})
    return [about, *(row(number, "forged") for number in numbers)]


def _keyed(*keys: Any, last: Any = 2) -> list[Line]:
    return session("evil", ["forged", "forged"], keys=list(keys), last=last)


def _told(count: int = 1, **more: Any) -> list[Line]:
    return session("evil", ["forged"] * count, **more)


def _empty(**more: Any) -> list[Line]:
    return [head("evil", 0, **more)]


def _without(field: str) -> list[Line]:
    about, *rows = _told()
    del about[field]
    return [about, *rows]


def _named_in_base64(data: str) -> list[Line]:
    about, *rows = _without("session")
    return [{**about, "session_b64": data}, *rows]


def _deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def _each(
    what: str, values: Iterable[Any], make: Callable[[Any], list[Line]]
) -> dict[str, Callable[[], list[Line]]]:
    return {f"{what} {reprlib.repr(v)}": functools.partial(make, v) for v in values}


BIG = (2**31, 2**32 + 1, 2**53 + 1, 2**63, 10**400)

WRONG: dict[str, Callable[[], list[Line]]] = {
    # Numbers of messages.
    **_each("seq", (0, -1, *BIG), lambda n: _numbered(n, last=1)),
    **_each("seq and last", (0, -1, *BIG[1:]), _numbered),
    "seq true": lambda: _numbered(True, last=1),
    "seq 1.0": lambda: _numbered(1.0, last=1),
    "seq as text": lambda: _numbered("1", last=1),
    "seq null": lambda: _numbered(None, last=1),
    "seq as a list": lambda: _numbered([1], last=1),
    "a gap": lambda: _numbered(1, 3),
    "a gap that last hides": lambda: _numbered(1, 3, last=2),
    "disorder": lambda: _numbered(2, 1, last=2),
    "disorder to the end": lambda: _numbered(2, 1, 3),
    "the same number twice": lambda: _numbered(1, 1, last=2),
    "numbers beyond the last one": lambda: _numbered(NUMBER_MAX, NUMBER_MAX + 1),
    # The last number.
    **_each("last", (-1, *BIG[1:]), lambda n: _empty(last=n)),
    **_each("last", (True, 1.0, "1", None, [1], {}), lambda n: _empty(last=n)),
    "last after the final message": lambda: _numbered(1, last=5),
    "last before the final message": lambda: _numbered(1, 2, last=1),
    # How many there are.
    **_each("messages", (-1, 2**63, True, 1.0, "1", None), lambda n: _told(messages=n)),
    "fewer than it says": lambda: [head("evil", 2), row(1, "forged")],
    # Keys.
    "digest of 15 bytes": lambda: _keyed([DIGEST[2:], 1, 1]),
    "digest of 17 bytes": lambda: _keyed([DIGEST + "00", 1, 1]),
    "digest that is no hex": lambda: _keyed(["x" * 32, 1, 1]),
    "digest that is no text": lambda: _keyed([7, 1, 1]),
    "digest twice": lambda: _keyed([DIGEST, 1, 1], [DIGEST.upper(), 2, 2]),
    "key from 0": lambda: _keyed([DIGEST, 0, 1]),
    "key from -1": lambda: _keyed([DIGEST, -1, 1]),
    "key backwards": lambda: _keyed([DIGEST, 2, 1]),
    "key beyond the session": lambda: _keyed([DIGEST, 1, 3]),
    "key far beyond": lambda: _keyed([DIGEST, 2**63, 2**63]),
    "key of true": lambda: _keyed([DIGEST, True, 1]),
    "key of text": lambda: _keyed([DIGEST, "1", "1"]),
    "key of floats": lambda: _keyed([DIGEST, 1.0, 1.0]),
    "key of two parts": lambda: _keyed([DIGEST, 1]),
    "key of four parts": lambda: _keyed([DIGEST, 1, 1, 1]),
    "key that is no list": lambda: _keyed(DIGEST),
    "keys that are no list": lambda: _told(keys={"a": 1}),
    "keys null": lambda: _told(keys=None),
    "more keys than numbers": lambda: _keyed(
        [DIGEST, 1, 1], ["11" * 16, 1, 1], ["22" * 16, 1, 1], ["33" * 16, 1, 1]
    ),
    # Time.
    **_each("ttl", (0, -1, 1e-9, 1e12, 10**400), lambda n: _told(ttl_s=n)),
    **_each("ttl", (True, "9", [], float("inf"), float("nan")), lambda n: _told(ttl_s=n)),
    **_each("expiry", (-1, 2**53, 2**63, 10**400), lambda n: _told(expires_at_ms=n)),
    **_each("expiry", (True, 1.5, "9", [], {}), lambda n: _told(expires_at_ms=n)),
    # States.
    **_each("state", ("never", "LIVE", "", None, 1, [], {}), lambda s: _told(state=s)),
    "never without messages": lambda: _empty(state="never"),
    "expired with messages": lambda: _told(state="expired"),
    "forgotten with messages": lambda: _told(state="forgotten"),
    "forgotten with a time to live": lambda: _empty(last=1, state="forgotten", ttl_s=60),
    "forgotten with an expiry": lambda: _empty(last=1, state="forgotten", expires_at_ms=PAST_MS),
    # Names.
    "no name": lambda: _told(session=""),
    "a name that is no text": lambda: _told(session=5),
    "a name too long": lambda: _told(session="x" * 1025),
    "a name that is null": lambda: _told(session=None),
    **_each("a name of bytes", ("/w==", "/20=", "/21h/w==", "", "*"), _named_in_base64),
    # Records.
    "a record that is missing": lambda: [head("evil", 1), {"seq": 1}],
    "a record that is no base64": lambda: [head("evil", 1), {"seq": 1, "record_b64": "*"}],
    "a record too deep": lambda: [head("evil", 1), {"seq": 1, "record": _deep(500)}],
    # Lines.
    **_each("without", ("session", "state", "last", "messages"), _without),
    **_each("without", ("ttl_s", "expires_at_ms", "keys"), _without),
    "a line that is a list": lambda: [[1, 2]],  # type: ignore[list-item]
    "a line that is a number": lambda: [5],  # type: ignore[list-item]
}  # fmt: skip


def wrong_files() -> dict[str, list[str]]:
    """A sound session before each wrong one, and one after it."""
    before, after = session("before", ["b1", "b2"]), session("after", ["a1"])
    files = {name: export(before, make(), after) for name, make in WRONG.items()}
    sound = export(before)
    files |= {
        "depth 100,000": [*sound[:-1], "[" * 100_000 + "]" * 100_000],
        "depth 100,000, open": [*sound[:-1], '{"a":' * 100_000],
        "a number of 100,000 digits": [*sound[:-1], '{"seq":' + "9" * 100_000 + "}"],
        "no JSON": [*sound[:-1], "\x00"],
        "lines after the end": [*sound, *export(after)[1:]],
        "an end of half a session": [*sound[:-1], '{"end":true,"sessions":1.0}'],
        "an end that is false": [*sound[:-1], '{"end":false,"sessions":1}'],
        "an end of another count": [*sound[:-1], '{"end":true,"sessions":-1}'],
        "version true": ['{"holdfast_export":true}', *sound[1:]],
        "version 0": ['{"holdfast_export":0}', *sound[1:]],
        "version as text": ['{"holdfast_export":"1"}', *sound[1:]],
        "version 2**70": [f'{{"holdfast_export":{2**70}}}', *sound[1:]],
        "a header that is a list": ["[]", *sound[1:]],
        "a line that is no text": [*sound[:-1], None],  # type: ignore[list-item]
    }
    return files
