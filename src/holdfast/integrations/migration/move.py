"""Bring histories over, each session whole, and prove by reading back that they are there.

What was brought over is known again: a message's id and all else of it are made from the source
alone. So a second run adds nothing, an interrupted one goes on, and another writer of the target
meanwhile is left alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import codec, limits
from holdfast.connection import connect
from holdfast.contract import Store
from holdfast.errors import Conflict, UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.framework_operations import StepRunner
from holdfast.integrations.migration.adk_sessions import migrate_adk
from holdfast.integrations.migration.found import (
    GONE,
    Difference,
    Found,
    LeftOut,
    Moved,
    Row,
    Source,
    no_session,
)
from holdfast.integrations.migration.memories import migrate_memories
from holdfast.integrations.migration.sources import (
    ADK,
    CHECKPOINTERS,
    MEM0,
    Kind,
    kind_of,
    open_source,
)
from holdfast.model import Durability, History, Message


@dataclass(frozen=True, slots=True)
class _Session:
    name: str
    messages: Sequence[Message]
    left_out: Sequence[LeftOut]
    ttl_s: float | None


def migrate(
    source: str,
    target: str,
    *,
    kind: str | None = None,
    to: str | None = None,
    place: str | None = None,
    namespace: str = "default",
    require: Durability = Durability.DISK,
    dry_run: bool = False,
) -> Moved:
    """Bring every history of a framework's store over, then read all of it back and compare.

    `kind` is one of `KINDS`; `place` is the table, or the prefix of the keys, where it is not the
    framework's default. The source is only read from. With `dry_run` the target is not opened.

    LangGraph's threads go both ways: `kind` is one of `CHECKPOINTERS`, or `to` is one, and then the
    source is a store of ours.
    """
    more: dict[str, Any] = {"namespace": namespace, "require": require, "dry_run": dry_run}
    if kind in CHECKPOINTERS or to is not None:
        return _threads(source, target, kind, to, place)(**more)
    if kind == ADK:
        return migrate_adk(source, target, **more)
    if kind in MEM0:
        place = MEM0[kind] if place is None else place
        return migrate_memories(source, target, kind=kind, place=place, **more)
    if kind is None:
        raise UsageError("say where it comes from (--from), or of a store of ours where to (--to)")
    known = kind_of(kind)
    moved = Moved()
    with_target = None if dry_run else connect(target, namespace=namespace, require=require)
    try:
        for session in _sessions(known, kind, source, place, moved):
            if with_target is None:
                moved.sessions += 1
                moved.messages += len(session.messages)
            else:
                _bring(with_target, session, kind, moved)
    finally:
        if with_target is not None:
            with_target.close()
    if with_target is not None:
        with connect(target, namespace=namespace, require=require) as again:
            for session in _sessions(known, kind, source, place, Moved()):
                _verify(again, session, moved)
    return moved


def _threads(
    source: str, target: str, kind: str | None, to: str | None, place: str | None
) -> Callable[..., Moved]:
    if kind is not None and to is not None:
        raise UsageError("one side is a store of ours: name the other one, --from or --to")
    if place is not None:
        raise UsageError("LangGraph's tables have their own names: leave --table out")
    if (kind or to) not in CHECKPOINTERS:
        raise UsageError(f"no target {to!r}; there are: {', '.join(CHECKPOINTERS)}")
    try:
        threads = importlib.import_module("holdfast.integrations.migration.threads")
    except ImportError as error:
        raise UsageError(f"{error}. To have it: pip install 'holdfast[langgraph]'") from error
    return functools.partial(threads.migrate_threads, source, target, kind=kind, to=to)


def _sessions(
    known: Kind, kind: str, url: str, place: str | None, moved: Moved
) -> Iterator[_Session]:
    """Every session of the source in our words; what has none is noted."""
    source: Source = open_source(known, url, place)
    try:
        for name in source.names():
            if (reason := no_session(name)) is not None:
                moved.left_out.append(LeftOut(name, None, reason))
                continue
            found = source.read(name)
            session = _converted(known, kind, name, found)
            if known.shared and found.rows and not session.messages:
                moved.foreign.append(name)
            else:
                moved.left_out += session.left_out
                yield session
    finally:
        source.close()


def _converted(known: Kind, kind: str, name: str, found: Found) -> _Session:
    messages: list[Message] = []
    left_out: list[LeftOut] = []
    for row in found.rows:
        try:
            messages.append(_message(known, kind, name, row))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            words = f"{type(error).__name__}: {error}"
            left_out.append(LeftOut(name, row.place, words))
    return _Session(name, messages, left_out, found.ttl_s)


def _message(known: Kind, kind: str, name: str, row: Row) -> Message:
    form = json.loads(row.text)
    if isinstance(form, str):  # JSON that was stored as JSON
        form = json.loads(form)
    raw = row.text if isinstance(row.text, bytes) else row.text.encode("utf-8", "surrogatepass")
    named = f"{kind}\0{name}\0{row.place}\0".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(named + raw, digest_size=16).hexdigest()
    message = known.message(form, id=digest, created_at=row.at)
    codec.encode(message)  # what is too large, or no JSON of ours, is left out here
    return message


def _bring(store: Store, session: _Session, kind: str, moved: Moved) -> None:
    """Append what is not there yet; nothing where the target says something else."""
    have = store.history(session.name)
    if have.state in GONE:
        moved.gone.append(session.name)
        return
    if _reason(session, have) is not None:
        return  # the reading back says so
    rest = session.messages[len(have) :]
    moved.present += len(session.messages) - len(rest)
    if not rest:
        return
    api, last = StepRunner(store), have.last
    more: dict[str, Any] = {} if session.ttl_s is None else {"ttl_s": session.ttl_s}
    for batch in _batches(rest):
        key = framework_operations.key_of_ids(kind, (message.id for message in batch))
        try:
            ack = api.run(framework_operations.add(session.name, batch, key, expect=last, **more))
        except Conflict:
            return  # a client writes there at this moment; the reading back says so
        last = last if ack is None else ack.last
    moved.sessions += 1
    moved.messages += len(rest)
    moved.expiring += session.ttl_s is not None


def _batches(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """A session in one append, so that it is there whole; one beyond the limits in several."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        length = len(codec.encode(message))
        if batch and (
            len(batch) == limits.BATCH_MESSAGES_MAX or size + length > limits.BATCH_BYTES_MAX
        ):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch


def _verify(store: Store, session: _Session, moved: Moved) -> None:
    have = store.history(session.name)
    if have.state in GONE:
        if session.name not in moved.gone:
            moved.gone.append(session.name)
        return
    reason = _reason(session, have)
    if reason is None and len(have) < len(session.messages):
        missing = len(session.messages) - len(have)
        reason = (
            f"{missing} message(s) of the source are not there: they came meanwhile (run this "
            "again), or were taken out of the target"
        )
    if reason is not None:
        moved.differences.append(Difference(session.name, reason))
    else:
        moved.verified += len(session.messages)


def _reason(session: _Session, have: History) -> str | None:
    """What contradicts that one is the beginning of the other; None where nothing does."""
    if have.damaged:
        return f"record {have.damaged[0].seq} of the target cannot be read"
    for number, (here, there) in enumerate(zip(have, session.messages, strict=False), start=1):
        if here != there:
            return (
                f"message {number} of the target is not that of the source, and nothing was added. "
                "Bring this source into a namespace of its own"
            )
    return None
