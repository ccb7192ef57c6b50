"""What is written into a capsule: plain turns, odd content, odd names, forgetting. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.verify.workload import probes

SESSIONS: Final = 3
TURNS: Final = 3
NAMES: Final = 8
LONG_BYTES_MAX: Final = 4096
"""Longer content says nothing more about a format."""
TTL_S: Final = 946_080_000
"""Thirty years: it must be remembered, and not expire before it is read."""
OLD: Final = "old-records"
"""A session with records of every version that was ever written, and one that is damaged."""


@dataclass(frozen=True, slots=True)
class Write:
    """One thing to do with a store."""

    f: str
    session: str
    messages: tuple[dict[str, Any], ...] = ()
    key: str | None = None
    ttl_s: float | None = None


def writes(seed: int, *, keyed: bool, rewrites: bool) -> Iterator[Write]:
    """The same for the same seed."""
    yield from _turns(seed, keyed)
    yield from _odd()
    gone = _message("gone", 0, "a secret")
    yield Write("append", "gone", (gone,), key="gone" if keyed else None)
    yield Write("forget", "gone")
    yield Write("append", "anew", (_message("anew", 0, "before"),))
    yield Write("forget", "anew")
    yield Write("append", "anew", (_message("anew", 1, "after"),))
    if rewrites:
        yield Write("append", "edited", tuple(_message("edited", n, f"{n}") for n in range(3)))
        yield Write("rewrite", "edited", (_message("edited", 3, "a summary"),))
        yield Write("append", "brief", (_message("brief", 0, "for a while"),), ttl_s=TTL_S)


def _turns(seed: int, keyed: bool) -> Iterator[Write]:
    chance = random.Random(f"capsule/{seed}")  # noqa: S311 - a plan, not a secret
    for number in range(SESSIONS):
        session = f"user-{number}"
        for turn in range(TURNS):
            said = chance.choice(("My name is Xiao Li", "What is my name?", "你好", "Ünïcödé 🙂"))
            pair = (_message(session, 2 * turn, said), _message(session, 2 * turn + 1, "I see."))
            yield Write("append", session, pair, key=f"turn-{turn}" if keyed else None)


def _odd() -> Iterator[Write]:
    for number, (_, fields) in enumerate(probes.CONTENTS):
        if len(json.dumps(fields)) <= LONG_BYTES_MAX:
            message = {**_message("odd", number, ""), **fields}
            yield Write("append", "odd", (message,))
    for number, name in enumerate(probes.NEIGHBOURS[:NAMES]):
        yield Write("append", name, (_message(f"name-{number}", 0, f"I am {name!r}"),))


def _message(session: str, number: int, content: str) -> dict[str, Any]:
    role = "assistant" if number % 2 else "user"
    return {"id": f"{session}.{number}", "role": role, "content": content}


def old_records(version_1: bytes) -> Iterator[str]:
    """An export with one session, for a store of ours to load.

    A record of version 0, one of version 1, one with a field of a later release, and one that
    is cut short.
    """
    records: list[dict[str, Any]] = [
        {"record": {"role": "user", "content": "from before the first release", "name": "Li"}},
        {"record": json.loads(version_1)},
        {"record_b64": "eyJ2IjoxLCJjcmMiOiIw"},
    ]
    head = {"session": OLD, "state": "live", "last": len(records), "ttl_s": None}
    yield json.dumps({"holdfast_export": 1})
    yield json.dumps({**head, "expires_at_ms": None, "keys": [], "messages": len(records)})
    for number, record in enumerate(records, 1):
        yield json.dumps({"seq": number, **record})
    yield json.dumps({"end": True, "sessions": 1})
