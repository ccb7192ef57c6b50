"""How a log is indexed: by number, in batches, as far as time allows. Both may crash.

The position of an index moves in the same step as its entries, so the next indexer goes on
where the last one ended. Nobody writes to log and index: entries are made from what the log says.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast import codec
from holdfast.commands import Facts, Read, ReadNumbers, Slice, StatSession
from holdfast.errors import EngineUnreachable, HoldfastError, StoredDataError
from holdfast.model import SessionState
from holdfast.recall import vectors, words
from holdfast.recall.embedders import Embedder
from holdfast.recall.index_commands import Entry, Erase, Extend, Position, ReadPosition
from holdfast.recall.summaries import text_of
from holdfast.runner import Steps

BATCHES: Final = (32, 512)
"""Records that are indexed in one step: the first, then twice as many each time up to the most."""
TEXT_CHARS_MAX: Final = 8_000
"""What an embedder is given of one message; words are taken from all of it."""


@dataclass(slots=True)
class Work:
    """A step that asks no engine: a model that computes, or a server that is asked."""

    call: Callable[[], Any]


def embed(embedder: Embedder, texts: Sequence[str]) -> Steps[list[vectors.Packed]]:
    """The vectors of some texts."""
    short = [text[:TEXT_CHARS_MAX] for text in texts]
    rows = yield Work(lambda: _asked(embedder, short))
    return vectors.pack(rows, model=embedder.name, count=len(texts), dimension=embedder.dimension)


def _asked(embedder: Embedder, texts: Sequence[str]) -> Any:
    try:
        return embedder.embed(texts)
    except HoldfastError:
        raise
    except Exception as error:
        raise EngineUnreachable(
            f"the embedder {embedder.name} failed ({type(error).__name__}: {error}). The log is "
            "complete; the index goes on when the embedder works again",
            operation="recall",
        ) from error


def model_of(embedder: Embedder) -> str:
    """What an index notes of its vectors: name and dimension."""
    return f"{embedder.name}/{embedder.dimension}"


def end_of(facts: Facts) -> int:
    """The last visible number of a log, 0 if nothing is."""
    return facts.last if facts.state is SessionState.LIVE and facts.count else 0


def lag(log: bytes, embedder: Embedder) -> Steps[int]:
    """How many records of a log its index lacks."""
    facts: Facts = yield StatSession(log)
    position: Position = yield ReadPosition(log)
    return behind(facts, position, model_of(embedder))


def behind(facts: Facts, position: Position, model: str, seq: int | None = None) -> int:
    """The same, from what log and index say; with `seq`, of the records up to that number."""
    floor = facts.floor
    end = end_of(facts) if seq is None else min(seq, end_of(facts))
    if (position.model, position.floor) != (model, floor) or position.upto > facts.last:
        return max(0, end - floor)
    return max(0, end - position.upto)


def index_log(
    log: bytes,
    facts: Facts,
    embedder: Embedder,
    *,
    until_s: float,
    from_scratch: bool = False,
    seq: int | None = None,
    batches: tuple[int, int] = BATCHES,
) -> Steps[tuple[int, int]]:
    """Bring the index of a log to where the log was, or to `seq`, or as far as there is time.

    How many records it was behind before, and how many it is now.
    """
    model = model_of(embedder)
    position: Position = yield ReadPosition(log)
    if position.mark and not (yield from _is_of_this_log(log, position)):
        from_scratch = True
    before = behind(facts, Position() if from_scratch else position, model, seq)
    if before or (position.model and not end_of(facts)):
        goal = _Goal(end_of(facts) if seq is None else min(seq, end_of(facts)), until_s, *batches)
        position = yield from _move(log, facts, position, embedder, goal, from_scratch=from_scratch)
    return before, behind(facts, position, model, seq)


@dataclass(slots=True)
class _Goal:
    """How far, until when, and in steps of how many records."""

    end: int
    until_s: float
    batch: int
    batch_max: int


def _move(
    log: bytes,
    facts: Facts,
    position: Position,
    embedder: Embedder,
    goal: _Goal,
    *,
    from_scratch: bool,
) -> Steps[Position]:
    model = model_of(embedder)
    floor = facts.floor
    if not goal.end:  # an index outside the log's engine was away when this was forgotten
        yield Erase(log)
        return Position(model)
    if position.model != model or position.upto > facts.last or position.floor != floor:
        from_scratch = True
    if from_scratch:
        position = Position(model, floor, floor)
    begun = False
    while position.upto < goal.end and not (begun and time.monotonic() >= goal.until_s):
        cut: Slice = yield Read(log, goal.batch, None, position.upto)
        if not cut.rows:
            break
        entries = yield from _entries(cut, embedder)
        upto = cut.rows[-1][0]
        after = 0 if from_scratch else position.upto
        mark = _mark(cut.rows[-1][1])
        moved: Position = yield Extend(log, model, after, upto, entries, floor, from_scratch, mark)
        if not moved.model and not from_scratch:
            position, from_scratch = (
                Position(model, floor, floor),
                True,
            )  # it was lost: from the beginning
            continue
        if moved.model != model or moved.upto <= position.upto:
            return moved  # forgotten meanwhile, or a client with another model is at work
        position, from_scratch = moved, False
        if moved.upto == upto:  # otherwise another client was faster, and this step comes again
            begun, goal.batch = True, min(2 * goal.batch, goal.batch_max)
    return position


def _is_of_this_log(log: bytes, position: Position) -> Steps[bool]:
    """Whether the index is of this log, and not another of its name: a restored one, say."""
    rows: Sequence[tuple[int, bytes]] = yield ReadNumbers(log, [position.upto])
    return not rows or _mark(rows[0][1]) == position.mark


def _mark(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=16).digest()


def _entries(cut: Slice, embedder: Embedder) -> Steps[list[Entry]]:
    texts = [(seq, text) for seq, record in cut.rows if (text := _text(record)).strip()]
    if not texts:
        return []
    packed = yield from embed(embedder, [text for _, text in texts])
    return [
        Entry(seq, one.vector, one.sketch, words.weights(text))
        for (seq, text), one in zip(texts, packed, strict=True)
    ]


def _text(record: bytes) -> str:
    """A record that cannot be read has no text; a read of the history reports it."""
    try:
        return text_of(codec.decode(record))
    except StoredDataError:
        return ""


def catch_up(
    logs: Sequence[bytes],
    embedder: Embedder,
    *,
    timeout_s: float,
    from_scratch: bool = False,
    seq: int | None = None,
) -> Steps[int]:
    """Index each log to where it is now, and return how many records that were; raise if time is up.

    With `seq`, only that far.
    """
    until_s = time.monotonic() + timeout_s
    done = 0
    for log in logs:
        facts: Facts = yield StatSession(log)
        again, left = from_scratch, 1
        while left:
            before, left = yield from index_log(
                log, facts, embedder, until_s=until_s, from_scratch=again, seq=seq
            )
            done += max(0, before - left)
            if left and time.monotonic() >= until_s:
                raise EngineUnreachable(
                    f"the index is {left} record(s) behind after {timeout_s:g} s. The log is "
                    "complete; the index goes on from there with the next call",
                    operation="recall",
                )
            if left:  # another client was at work on it: forgotten, rewritten, another model
                again, facts = False, (yield StatSession(log))
    return done
