"""Threads of LangGraph, from its own checkpointers to ours and back, proven by reading back.

A checkpoint has an id, so what is there is known again: a second run adds nothing, an interrupted one
goes on. Checkpoints are read one at a time: a thread may be larger than memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from holdfast.errors import HoldfastError, InvalidMessage, LimitExceeded
from holdfast.integrations.checkpoint_log import Place
from holdfast.integrations.migration.checkpointers import End, open_end
from holdfast.integrations.migration.found import Difference, LeftOut, Moved, no_session
from holdfast.model import Durability

UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)
"""What a checkpoint that is damaged, or encrypted by the application, ends in."""
TOO_MUCH = (InvalidMessage, LimitExceeded, sqlite3.IntegrityError)
"""What one ends in that the target cannot hold."""


def migrate_threads(
    source: str,
    target: str,
    *,
    kind: str | None,
    to: str | None,
    namespace: str,
    require: Durability,
    dry_run: bool,
) -> Moved:
    """Bring every thread over; `kind` and `to` are ends of `CHECKPOINTERS`, None a store of ours."""
    moved = Moved(unit="checkpoint")
    more: dict[str, Any] = {"namespace": namespace, "require": require}
    with open_end(kind, source, reads=True, **more) as origin:
        if dry_run:
            for thread in origin.threads():
                moved.sessions += 1
                moved.messages += len(origin.places(thread))
            return moved
        with open_end(to, target, reads=False, **more) as goal:
            for thread in origin.threads():
                if (reason := no_session(thread)) is None:
                    _bring(origin, goal, thread, moved)
                else:
                    moved.left_out.append(LeftOut(thread, None, reason))
        with open_end(to, target, reads=True, **more) as goal:
            for thread in origin.threads():
                if thread not in moved.gone and no_session(thread) is None:
                    _verify(origin, goal, thread, moved)
    return moved


def _bring(origin: End, goal: End, thread: str, moved: Moved) -> None:
    """Put what is not there yet; nothing where the target has gone on by itself."""
    if goal.is_gone(thread):
        moved.gone.append(thread)
        return
    places, there = origin.places(thread), set(goal.places(thread))
    if there - set(places) and set(places) - there:
        return  # the reading back says so
    added = 0
    for number, place in enumerate(places, 1):
        try:
            found = origin.saver.get_tuple(_config(thread, place))
            have = goal.saver.get_tuple(_config(thread, place)) if place in there else None
            if found is None:
                continue  # it was deleted meanwhile
            if have is None:
                _put(goal, thread, found)
                added += 1
            elif _difference(found, have) not in (None, "writes"):
                continue
            else:
                moved.present += 1
            if have is None or _difference(found, have) == "writes":
                _put_writes(origin, goal, thread, place, found)
        except (*UNREADABLE, *TOO_MUCH) as error:
            if isinstance(error, HoldfastError) and not isinstance(error, TOO_MUCH):
                raise
            reason = f"checkpoint {place[1]}: {type(error).__name__}: {error}"
            moved.left_out.append(LeftOut(thread, number, reason))
    moved.sessions += bool(added)
    moved.messages += added


def _put(goal: End, thread: str, found: CheckpointTuple) -> None:
    parent: dict[str, Any] = (found.parent_config or {}).get("configurable", {})
    place = _place(found)
    config = _config(thread, (place[0], parent.get("checkpoint_id")))
    versions = found.checkpoint["channel_versions"]
    goal.saver.put(config, found.checkpoint, found.metadata, versions)


def _put_writes(origin: End, goal: End, thread: str, place: Place, found: CheckpointTuple) -> None:
    """Each task's writes as it made them: those that have a place of their own apart."""
    paths = origin.paths(thread, place) if found.pending_writes else {}
    for task, writes in _by_task(found).items():
        path = paths.get(task, "")
        plain = [one for one in writes if one[0] not in WRITES_IDX_MAP]
        special = [one for one in writes if one[0] in WRITES_IDX_MAP]
        for some in (plain, special):
            if some:
                goal.saver.put_writes(_config(thread, place), some, task, path)


def _verify(origin: End, goal: End, thread: str, moved: Moved) -> None:
    left_out = {one.place for one in moved.left_out if one.session == thread}
    places = [place for at, place in enumerate(origin.places(thread), 1) if at not in left_out]
    reasons = []
    for place in places:
        found = origin.saver.get_tuple(_config(thread, place))
        have = goal.saver.get_tuple(_config(thread, place))
        what = "all" if have is None else _difference(found, have) if found else None
        if what is None:
            moved.verified += 1
        else:
            reasons.append(f"checkpoint {place[1]}: {what}")
    # Which is the latest says nothing where the target has gone on, or one could not come over.
    compared = not (reasons or left_out or set(goal.places(thread)) > set(places))
    for ns in sorted({ns for ns, _ in places}) if compared else ():
        latest = [end.saver.get_tuple(_config(thread, (ns, None))) for end in (origin, goal)]
        if None in latest or len({_place(one) for one in latest if one}) > 1:
            reasons.append(f"the latest of namespace {ns!r}")
    if reasons:
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        reason = f"{reasons[0]} is not as in the source{more}. Bring it into a target of its own"
        moved.differences.append(Difference(thread, reason))


def _difference(one: CheckpointTuple, other: CheckpointTuple) -> str | None:
    """What of two checkpoints is not the same; None if all is."""
    parents = [(found.parent_config or {}).get("configurable", {}) for found in (one, other)]
    if parents[0].get("checkpoint_id") != parents[1].get("checkpoint_id"):
        return "parent"
    if dict(one.checkpoint) != dict(other.checkpoint):
        return "checkpoint"
    if dict(one.metadata) != dict(other.metadata):
        return "metadata"
    return None if _by_task(one) == _by_task(other) else "writes"


def _by_task(found: CheckpointTuple) -> Mapping[str, list[tuple[str, Any]]]:
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or ():
        tasks.setdefault(task, []).append((channel, value))
    return tasks


def _place(found: CheckpointTuple) -> Place:
    named = found.config["configurable"]
    return str(named.get("checkpoint_ns") or ""), str(named["checkpoint_id"])


def _config(thread: str, place: tuple[str, str | None]) -> Any:
    named = {} if place[1] is None else {"checkpoint_id": place[1]}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": place[0], **named}}
