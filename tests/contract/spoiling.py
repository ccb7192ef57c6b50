"""Real exports, spoilt: the files of somebody who hates you. Pure."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

from tests.contract.harness import AnyStore, say
from tests.exports import FUTURE_MS, NUMBER_MAX, PAST_MS

NUMBERS = [0, -1, 1, 2, 3, 2**31, NUMBER_MAX, 2**32, 2**32 + 1, 2**40, 2**53 + 1, 2**63, 10**400]
OTHERS: list[Any] = [
    None, True, 1.5, "", "1", "x", "live", "forgotten", "\ud800", [], {}, [[]], [["", 1, 1]],
    "own", base64.b64encode(b"\xffmown").decode(),
]  # fmt: skip
VALUES = [*NUMBERS, *OTHERS, PAST_MS, FUTURE_MS, 1e308]
LINES = ["", "{}", "[]", "0", "{", '"\\ud800"', '{"end":true,"sessions":1}', '{"seq":1}', "\x00"]
BODIES = [
    b"", b"[", b"\xff", b"{}", b"[NaN]", b"[1e999]", b"[" * 950 + b"]" * 950, b"[" * 100_000,
    b'{"id":"i","role":"user","content":[NaN],"at":null}',
    b'{"id":"i","role":"user","content":"x","at":"0001-01-01T00:00:00+23:59"}',
    b'{"id":"i","role":"user","content":"x","at":"yesterday"}',
    b'{"id":7,"role":null,"content":{},"at":0,"extra":[]}',
    b'{"id":"i","role":"user","content":"x","at":null,"extra":{"role":"system"}}',
    b'{"id":"i","role":"user","content":' + b"[" * 300 + b"]" * 300 + b',"at":null}',
]  # fmt: skip
CHARACTERS = '\x00"{}[],:0-9eE+\\\ud800é\u2028'
KINDS: dict[str, list[Any]] = {
    "value": VALUES, "drop": [None], "swap": [None], "twice": [None], "cut": [None], "line": LINES,
    "record": BODIES, "character": list(CHARACTERS),
}  # fmt: skip
PLACES_MAX = 99

Mutation = tuple[str, int, int, Any]
"""A kind, a line, a place in it or another line, and what comes there."""


def mutations(chance: random.Random) -> list[Mutation]:
    """One to three at random."""
    kinds = chance.choices(list(KINDS), k=chance.randint(1, 3))
    return [
        (kind, chance.randint(0, PLACES_MAX), chance.randint(0, PLACES_MAX), chance.choice(KINDS[kind]))
        for kind in kinds
    ]  # fmt: skip


def spoilt(lines: list[str], changes: list[Mutation]) -> list[str]:
    """The lines with these changes, one after the other."""
    lines = list(lines)
    for kind, line, other, new in changes:
        at, to = line % len(lines), other % len(lines)
        if kind == "value":
            lines[at] = _with_value(lines[at], other, new)
        elif kind == "record":
            lines[at] = _with_record(lines[at], new)
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "swap":
            lines[at], lines[to] = lines[to], lines[at]
        elif kind == "twice":
            lines.insert(to, lines[at])
        elif kind == "cut":
            lines[at] = lines[at][: other * len(lines[at]) // 100]
        elif kind == "character" and lines[at]:
            place = other * len(lines[at]) // 100
            lines[at] = lines[at][:place] + new + lines[at][place + 1 :]
        elif kind == "line":
            lines.insert(at, new)
    return lines


def _with_value(line: str, other: int, new: Any) -> str:
    value = _json(line)
    places = _paths(value)
    if not places:
        return line
    *outside, last = places[other % len(places)]
    inner = value
    for key in outside:
        inner = inner[key]
    inner[last] = new
    return json.dumps(value)


def _with_record(line: str, body: bytes) -> str:
    """Another record in a line, with a checksum that is right."""
    value = _json(line)
    if not isinstance(value, dict) or "seq" not in value:
        return line
    record = b'{"v":1,"crc":"%08x","msg":%b}' % (zlib.crc32(body), body)
    return json.dumps({"seq": value["seq"], "record_b64": base64.b64encode(record).decode()})


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _paths(value: Any, upto: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()  # fmt: skip
    return [path for key, one in inside for path in ((*upto, key), *_paths(one, (*upto, key)))]


def source(store: AnyStore) -> list[str]:
    """An export with every kind of session, and of log beside one, that there is."""
    store.append("a", [say("a1"), say("a2")], key="k")
    store.append("brief", say("x"), ttl_s=3600, key="k")
    store.append("rewritten", [say("r1"), say("r2")])
    store.rewrite("rewritten", say("r3"))
    store.rewrite("emptied", [])
    store.append("gone", say("g"), key="k")
    store.forget("gone")
    store.append("\ud800 odd", say("\ud800"))
    store.remember("a", "a likes figs", key="k")
    return list(store.export())


def names(lines: list[str]) -> list[bytes]:
    """Of the sessions and of the logs beside them, as far as lines say them."""
    found = [value for line in lines if isinstance(value := _json(line), dict)]
    return [name for value in found for name in [_name(value)] if name is not None]


def _name(value: dict[str, Any]) -> bytes | None:
    if isinstance(value.get("session"), str):
        return str(value["session"]).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value["session_b64"])
    except (ValueError, KeyError, TypeError):
        return None


def below(prefix: str, lines: list[str]) -> list[str]:
    """The same export, every session of which has another name: one that begins with `prefix`."""
    renamed = []
    for line in lines:
        value = json.loads(line)
        if "session" in value:
            value["session"] = prefix + value["session"]
        elif "session_b64" in value:
            name = base64.b64decode(value["session_b64"])
            sublog = name[:2] if name.startswith(b"\xff") else b""
            name = sublog + prefix.encode() + name[len(sublog) :]
            value["session_b64"] = base64.b64encode(name).decode()
        renamed.append(json.dumps(value))
    return renamed
