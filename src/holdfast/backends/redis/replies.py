"""Replies of Redis as results, or as errors. Pure.

The first word says what happened; a refusal was decided before anything was changed.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.backends.redis.errors import BACKEND
from holdfast.commands import (
    Append,
    Copy,
    Derive,
    Facts,
    Removed,
    Rewrite,
    Slice,
    Written,
    check_expect,
    orphaned,
    unfit,
    written_since,
)
from holdfast.errors import Damaged, EngineFull, FormatTooNew, HoldfastError, NotApplied
from holdfast.model import Durability, SessionState
from holdfast.recall.index_commands import Position

IN_THE_FILES: Final = (
    "the append-only file and the last snapshot, where the server writes them, and those of its "
    "replicas, until they are rewritten: BGREWRITEAOF, BGSAVE"
)
IN_FILES_FOR_NOW: Final = f"{IN_THE_FILES}; now=True does it"
NEW_TICKET: Final = b"1"
"""Of a session that never was; one that was taken out of the index has one of its own."""


def ticket_of(reply: Any) -> bytes | None:
    """The ticket, if the script wants the session's name to be written to the index first."""
    if not isinstance(reply, list) or reply[:1] != [b"new"]:
        return None
    return bytes(reply[1]) if len(reply) > 1 else NEW_TICKET


def _trouble(reply: Any) -> HoldfastError | None:
    if reply[0] == b"torn":
        return Damaged(
            f"the session has {int(reply[2])} of its {int(reply[1])} messages: the engine evicted "
            "some, or another program took them. Nothing was changed. forget() makes it usable again",
            backend=BACKEND,
        )
    if reply[0] == b"damaged":
        return Damaged(
            "what the engine keeps of the session is not what was written: another program changed it. "
            "Nothing was changed. forget() erases it",
            backend=BACKEND,
        )
    if reply[0] == b"lost":
        return Damaged(
            "the index of the session has lost its vectors. Nothing was changed. It is rebuilt",
            backend=BACKEND,
        )
    if reply[0] == b"newer":
        return FormatTooNew(
            f"the session has layout {reply[1].decode()!r}, from a later release. Nothing was "
            "changed. Upgrade holdfast",
            backend=BACKEND,
        )
    return None


def checked(reply: Any) -> Any:
    """The reply, unless it says that the session is damaged, torn, lost or newer."""
    trouble = _trouble(reply)
    if trouble is not None:
        raise trouble
    return reply


def fit(reply: Any, _durability: Durability) -> Any:
    """The reply, unless what was staged does not fit together."""
    if checked(reply)[0] == b"unfit":
        raise unfit(reply[1].decode(), backend=BACKEND)
    return reply


def written(reply: Any, durability: Durability, command: Append | Rewrite) -> Written:
    """The numbers that were given, or the refusal."""
    if isinstance(reply, bytes):
        word, first, last = reply.split()
        return Written(int(first), int(last), durability, repeated=word == b"repeated")
    word = checked(reply)[0]
    if word == b"conflict":
        check_expect(command.expect, int(reply[1]), operation=command.operation, backend=BACKEND)
    if word == b"full":
        raise EngineFull(
            f"the session has given {int(reply[1])} numbers and cannot give that many more. "
            "Nothing was written. Go on in a new session",
            operation=command.operation,
            backend=BACKEND,
        )
    raise NotApplied(f"the script refused: {word!r}", backend=BACKEND)


def removed(reply: Any, _durability: Durability) -> Removed:
    """How much is gone."""
    checked(reply)
    if reply[0] == b"never":
        return Removed(0, 0)
    if reply[0] == b"written":
        raise written_since(backend=BACKEND)
    memories = int(reply[3])
    return Removed(int(reply[1]), int(reply[2]), memories=memories, left=(IN_FILES_FOR_NOW,))


def derived(reply: Any, durability: Durability, command: Derive) -> Written:
    """Of a record that was made from others, which may be gone."""
    if isinstance(reply, list) and reply[0] == b"orphaned":
        raise orphaned(command.source, backend=BACKEND)
    return written(reply, durability, Append(command.session, ()))


def numbered(reply: Any, _durability: Durability) -> list[tuple[int, bytes]]:
    """Records with their numbers."""
    _, *found = checked(reply)
    return [(int(seq), record) for seq, record in zip(found[::2], found[1::2], strict=True)]


def position(reply: Any, _durability: Durability) -> Position:
    """How far an index has come."""
    _, model, upto, floor = checked(reply)
    return Position(model.decode(), int(upto), int(floor))


def page(reply: Any, _durability: Durability) -> Slice:
    """A page of a session."""
    _, state, end, first, records, floor, trimmed = checked(reply)
    rows = list(enumerate(records, int(first)))
    return Slice(SessionState(state.decode()), int(end), rows, int(floor), int(trimmed))


def newest(reply: Any, limit: int | None) -> Slice:
    """The newest records, read in the same instant as the found."""
    found, records = facts(reply[0], Durability.MEMORY), reply[1]
    if found.state is not SessionState.LIVE:
        return Slice(found.state, 0, ())
    floor = int(reply[0][7])
    expected = found.last - floor
    if found.expires_ms is not None and expected and not records:
        return Slice(SessionState.EXPIRED, 0, ())  # within the very microsecond between the two
    if found.count != expected:
        checked([b"torn", expected, found.count])
    if len(records) != (expected if limit is None else min(limit, expected)):
        raise Damaged("the engine gave fewer records than it has", backend=BACKEND)
    rows = list(enumerate(records, found.last - len(records) + 1))
    return Slice(found.state, found.last if expected else 0, rows, floor, found.trimmed)


def facts(reply: Any, _durability: Durability) -> Facts:
    """The state of a session."""
    _, state, last, count, size, ttl_ms, expires_ms, _, trimmed, *more = checked(reply)
    found = Facts(SessionState(state.decode()), int(last), int(count), int(size))
    found.ttl_ms, found.expires_ms = (int(one) if one else None for one in (ttl_ms, expires_ms))
    found.trimmed = int(trimmed)
    if more:
        found.now_ms, found.marks, found.written_ms = int(more[0]), more[1], int(more[2])
    return found


def copied(reply: Any, durability: Durability) -> Copy:
    """A whole session."""
    _, state, records, used = checked(reply)
    keys = []
    for digest, numbers in zip(used[::2], used[1::2], strict=True):
        begin, end = numbers.split()[:2]  # and when it was used
        keys.append((digest, int(begin), int(end)))
    rows = list(enumerate(records, int(state[7]) + 1))
    return Copy(facts(state, durability), rows, sorted(keys))
