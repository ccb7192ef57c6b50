"""Memories of mem0, brought into the scopes of a store and read back.

mem0 keeps a memory as the payload beside its vector: in a table of PostgreSQL, or as `Memory.get_all` shows
it. Vectors do not come along: the index of the target makes its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.connection import connect
from holdfast.contract import Store
from holdfast.errors import UsageError
from holdfast.integrations.migration.found import GONE, Difference, LeftOut, Moved
from holdfast.integrations.migration.sql import Questions
from holdfast.model import Durability, History, Message

ID: Final = "mem0_id"
NOT_META: Final = ("data", "memory", "metadata", "text_lemmatized")
"""The text itself, what is spread out, and what mem0 derives for its search by words."""


class Memory(NamedTuple):
    """One of mem0, in our words."""

    scope: str
    id: str
    text: str
    meta: dict[str, Any]

    def is_in(self, record: Message) -> bool:
        """Whether this is it, as it was brought over."""
        return record.content == self.text and record.extra.get("meta") == self.meta


def migrate_memories(
    source: str,
    target: str,
    *,
    kind: str,
    place: str,
    namespace: str,
    require: Durability,
    dry_run: bool,
) -> Moved:
    """Remember each memory once, the oldest first; then read all of them back."""
    moved = Moved(unit="memory")
    found = _found(source, kind, place, moved)
    if dry_run:
        moved.sessions, moved.messages = len(found), sum(map(len, found.values()))
        return moved
    more: dict[str, Any] = {"namespace": namespace, "require": require}
    with connect(target, background_indexing=False, **more) as store:
        for scope, memories in found.items():
            _bring(store, scope, memories, moved)
    with connect(target, background_indexing=False, **more) as store:
        for scope, memories in _found(source, kind, place, Moved()).items():
            if scope not in moved.gone:
                _verify(store, scope, memories, moved)
    return moved


def _found(source: str, kind: str, place: str, moved: Moved) -> dict[str, list[Memory]]:
    """Every memory, by scope, the oldest first."""
    rows = _from_table(source, place) if kind == "mem0-postgres" else _from_file(source)
    found: dict[str, list[Memory]] = {}
    for number, (name, row) in enumerate(rows, 1):
        try:
            memory = _memory(name, json.loads(row) if isinstance(row, str) else row)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            moved.left_out.append(LeftOut(name or "", number, f"{type(error).__name__}: {error}"))
        else:
            found.setdefault(memory.scope, []).append(memory)
    for memories in found.values():
        memories.sort(key=lambda one: (str(one.meta.get("created_at") or ""), one.id))
    return found


def _from_table(url: str, table: str) -> Sequence[tuple[str | None, Any]]:
    asked = Questions(url)
    try:
        return [(name, payload) for name, payload in asked.texts(table, ("id", "payload"))]
    finally:
        asked.close()


def _from_file(url: str) -> Sequence[tuple[str | None, Any]]:
    """Results of `get_all`: one of them as JSON, or several in a list."""
    path = Path(url.removeprefix("file://"))
    try:
        said = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read ({error}). Nothing was written") from error
    found: list[Any] = []
    for one in said if isinstance(said, list) else [said]:
        results = one.get("results") if isinstance(one, dict) else None
        found += results if isinstance(results, list) else [one]
    return [(str(one.get("id")) if isinstance(one, dict) else None, one) for one in found]


def _memory(name: str | None, row: Any) -> Memory:
    if name is None or not isinstance(row, dict):
        raise TypeError("no JSON object with an id")
    text = row["data"] if "data" in row else row["memory"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError("it has no text")
    spread = row.get("metadata")
    meta = {**(spread if isinstance(spread, dict) else {}), **row}
    meta = {name: value for name, value in meta.items() if name not in NOT_META}
    meta.pop("id", None)
    for field, prefix in (("user_id", ""), ("agent_id", "agent/"), ("run_id", "run/")):
        if meta.get(field):
            return Memory(f"{prefix}{meta[field]}", name, text, {**meta, ID: name})
    raise ValueError("it is of no user, agent or run")


def _bring(store: Store, scope: str, memories: list[Memory], moved: Moved) -> None:
    have = store.memories(scope)
    if have.state in GONE:
        moved.gone.append(scope)
        return
    known, added = _by_id(have), 0
    for number, memory in enumerate(memories, 1):
        if memory.id in known:
            moved.present += memory.is_in(known[memory.id])
            continue  # if it is another one there, the reading back says so
        try:
            ack = store.remember(scope, memory.text, meta=memory.meta, key=f"mem0:{memory.id}")
        except UsageError as error:
            moved.left_out.append(LeftOut(scope, number, f"{type(error).__name__}: {error}"))
        else:
            added += not ack.repeated  # else it was erased here, and stays so
    moved.sessions += bool(added)
    moved.messages += added


def _verify(store: Store, scope: str, memories: list[Memory], moved: Moved) -> None:
    known = _by_id(store.memories(scope))
    named = {one.session for one in moved.left_out} | {one.session for one in moved.differences}
    for memory in memories:
        record = known.get(memory.id)
        if record is not None and memory.is_in(record):
            moved.verified += 1
        elif scope not in named:
            named.add(scope)
            why = "was erased there" if record is None else "is another one there"
            moved.differences.append(Difference(scope, f"memory {memory.id} {why}"))


def _by_id(have: History) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for record in have:
        meta = record.extra.get("meta")
        if isinstance(meta, dict) and isinstance(name := meta.get(ID), str):
            found[name] = record
    return found
