"""What is remembered of a person: shown, searched, deleted, forgotten, exported, loaded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from holdfast import codec, operations
from holdfast.chat import bounds
from holdfast.chat.people import NAME, Person
from holdfast.chat.person_memories import memory_of, remember
from holdfast.chat.turns import found, shown_memory
from holdfast.commands import ERASED, MEMORIES
from holdfast.contract import AsyncStore
from holdfast.errors import Conflict, LimitExceeded, StoredDataError, UsageError
from holdfast.model import Erased, History, Message
from holdfast.transfer import Reader, SessionCopy

TITLE_CHARS = 60


@dataclass(frozen=True, slots=True)
class Gone:
    """How much was erased, all together."""

    conversations: int = 0
    messages: int = 0
    memories: int = 0
    bytes: int = 0
    scrubbed: bool = True

    def plus(self, erased: Erased, *, conversations: int = 0) -> Gone:
        """With what one more call has erased."""
        return Gone(
            self.conversations + conversations,
            self.messages + erased.messages,
            self.memories + erased.memories,
            self.bytes + erased.bytes,
            self.scrubbed and erased.scrubbed,
        )


async def conversations(store: AsyncStore, person: Person) -> list[dict[str, Any]]:
    """Newest first, each with its first words as a title."""
    found: list[dict[str, Any]] = []
    for name in await store.sessions(prefix=person.conversations, limit=bounds.SESSIONS_MAX):
        first = await store.history(name, after=0, limit=1)
        last = await store.history(name, limit=1)
        found.append(
            {
                "id": name.removeprefix(person.conversations),
                "title": _title(first),
                "last": last.last,
                "at": _at(last),
            }
        )
    return sorted(found, key=lambda one: str(one["at"]), reverse=True)


def _title(first: History) -> str:
    text = first[0].content if first.messages else ""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    return words if len(words) <= TITLE_CHARS else f"{words[: TITLE_CHARS - 1]}…"


def _at(last: History) -> str:
    at = last[-1].created_at if last.messages else None
    return "" if at is None else at.isoformat()


async def memories(store: AsyncStore, person: Person) -> dict[str, Any]:
    """The newest first, and where each comes from."""
    kept = await store.memories(person.memories, limit=bounds.MEMORIES_SHOWN)
    newest = reversed(kept.messages)
    return {"count": len(kept), "memories": [shown_memory(one) for one in newest]}


async def search(store: AsyncStore, person: Person, query: str) -> dict[str, Any]:
    """By meaning, best first; `behind` says how many were not looked at."""
    hits = await store.recall(person.memories, query, k=bounds.RECALLED * 2)
    return {"behind": hits.behind, "memories": [found(hit) for hit in hits]}


async def forget_conversation(store: AsyncStore, person: Person, conversation: str) -> Gone:
    """The conversation and what is remembered from it, memories first: then a retry finds it."""
    session = person.session(conversation)
    kept = await store.memories(person.memories)
    if kept.damaged:
        raise Conflict(
            f"{len(kept.damaged)} memories cannot be read, so what they come from is not known. "
            "Nothing was deleted"
        )
    gone = Gone()
    for one in kept:
        if one.seq and memory_of(one).conversation == conversation:
            gone = gone.plus(await store.forget_memory(person.memories, one.seq))
    return gone.plus(await store.forget(session), conversations=1)


async def forget_all(store: AsyncStore, person: Person) -> Gone:
    """Everything of a person: memories, then every conversation."""
    kept = await store.memories(person.memories)
    erased = await store.forget(person.memories)
    # The engine counts what stands in the place of erased ones too.
    gone = Gone().plus(replace(erased, memories=len(kept) + len(kept.damaged)))
    while names := await store.sessions(prefix=person.prefix, limit=bounds.SESSIONS_MAX):
        for name in names:
            gone = gone.plus(await store.forget(name), conversations=1)
    return gone


async def exported(store: AsyncStore, person: Person) -> AsyncIterator[bytes]:
    """Everything of a person, as `holdfast export` writes it."""
    async for line in store.export(prefix=person.prefix):
        yield f"{line}\n".encode()


async def load(store: AsyncStore, person: Person, lines: Iterable[str], key: str) -> dict[str, int]:
    """Add what an export holds, as conversations of this person; once for each key.

    They get new ids, made from the key, so that nothing that is there is touched, whosever
    export it is, and what was forgotten or has expired stays so.
    """
    copies = _copies(lines)
    moved = {
        conversation: hashlib.sha256(f"{key}/{conversation}".encode()).hexdigest()[:24]
        for _, conversation in copies
        if conversation
    }
    counts = {"conversations": 0, "messages": 0, "memories": 0}
    numbers: dict[tuple[str, int], int] = {}
    for messages, conversation in copies:
        if conversation and messages:
            ack = await store.append(person.session(moved[conversation]), messages, key=key)
            numbers |= {
                (conversation, old.seq or 0): ack.first + at for at, old in enumerate(messages)
            }
            counts["conversations"] += 1
            counts["messages"] += len(messages)
    for messages, conversation in copies:
        for old in [] if conversation else messages:
            memory = memory_of(old)
            if memory.text.strip():
                seq = numbers.get((memory.conversation, memory.seq), 0)
                source = moved[memory.conversation] if seq else ""
                new = replace(memory, conversation=source, seq=seq)
                await remember(store, person, new, key=f"load/{key}/{counts['memories']}")
                counts["memories"] += 1
    return counts


def _copies(lines: Iterable[str]) -> list[tuple[list[Message], str]]:
    """Whole before anything is written: a file that was cut short or is damaged loads nothing."""
    try:
        whole = list(_read(lines))
    except (StoredDataError, UsageError) as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"not a whole export: {why}. Nothing was loaded") from error
    named = [(copy, _conversation(copy.name)) for copy in whole]
    copies = [(copy, name) for copy, name in named if name is not None]
    if not copies:
        raise UsageError("no conversation of this chat is in that file; nothing was loaded")
    if len(copies) > bounds.SESSIONS_MAX:
        raise LimitExceeded(f"more than {bounds.SESSIONS_MAX} conversations; nothing was loaded")
    messages = [(_messages(copy), conversation) for copy, conversation in copies]
    for one, _ in messages:
        operations.encode_batch(one)  # so that none is refused after others were written
    return messages


def _conversation(log: bytes) -> str | None:
    """Which conversation a log holds, "" for memories; None for what is not of a chat."""
    name = NAME.match(log.removeprefix(MEMORIES).decode("utf-8", "replace"))
    if name is None or (log.startswith(MEMORIES) and name[3]):
        return None
    return name[3] or ""


def _messages(copy: SessionCopy) -> list[Message]:
    """What can be seen of a session by now."""
    expires_ms = copy.copy.facts.expires_ms
    if expires_ms is not None and expires_ms <= time.time() * 1000:
        return []
    try:
        return [codec.decode(record, seq) for seq, record in copy.copy.rows if record != ERASED]
    except StoredDataError as error:
        raise UsageError(f"a message cannot be read: {error}. Nothing was loaded") from error


def _read(lines: Iterable[str]) -> Iterator[SessionCopy]:
    reader = Reader()
    for line in lines:
        copy = reader.feed(line)
        if copy is not None:
            reader.count(copy, written=True)
            yield copy
    reader.finish()
