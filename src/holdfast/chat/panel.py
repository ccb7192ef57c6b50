"""What is remembered of a person: shown, searched, deleted, forgotten, exported, loaded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast import codec, operations
from holdfast.chat import bounds
from holdfast.chat.answers import source_of
from holdfast.chat.people import NAME, Person
from holdfast.chat.turns import found
from holdfast.contract import AsyncStore
from holdfast.errors import Conflict, LimitExceeded, StoredDataError, UsageError
from holdfast.model import History, Message, SessionState
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
    page = await store.history(person.memory, limit=bounds.MEMORIES_SHOWN)
    stat = await store.stat(person.memory)
    count = stat.count if stat.state is SessionState.LIVE else 0
    return {"count": count, "memories": [_shown(one) for one in reversed(page.messages)]}


def _shown(memory: Message) -> dict[str, Any]:
    conversation, seq = source_of(memory)
    at = memory.created_at
    return {
        "id": memory.id,
        "text": memory.content,
        "at": None if at is None else at.isoformat(),
        "conversation": conversation,
        "seq": seq,
    }


async def search(store: AsyncStore, person: Person, query: str) -> dict[str, Any]:
    """By meaning, best first; `behind` says how many were not looked at."""
    hits = await store.recall(person.memory, query, k=bounds.RECALLED * 2)
    return {"behind": hits.behind, "memories": [found(hit) for hit in hits]}


async def delete_memory(store: AsyncStore, person: Person, memory: str) -> int:
    """Take one out; 0 if it was not there. The conversation that it comes from stays."""
    return await _drop(store, person, lambda one: one.id == memory)


async def _drop(store: AsyncStore, person: Person, which: Callable[[Message], bool]) -> int:
    for _ in range(bounds.CONFLICT_TRIES):
        page = await store.history(person.memory)
        if page.damaged:
            raise Conflict(
                f"{len(page.damaged)} memories cannot be read, and a rewrite would lose them for "
                "good. Nothing was deleted"
            )
        kept = [one for one in page if not which(one)]
        if len(kept) == len(page):
            return 0
        try:
            await store.rewrite(person.memory, kept, expect=page.last)
        except Conflict:
            continue
        return len(page) - len(kept)
    raise Conflict("the memories changed at each try; nothing was deleted. Try again")


async def forget_conversation(store: AsyncStore, person: Person, conversation: str) -> Gone:
    """The conversation and what is remembered from it, memories first."""
    session = person.session(conversation)
    dropped = await _drop(store, person, lambda one: source_of(one)[0] == conversation)
    erased = await store.forget(session)
    return Gone(1, erased.messages, dropped + erased.memories, erased.bytes, erased.scrubbed)


async def forget_all(store: AsyncStore, person: Person) -> Gone:
    """Everything of a person: memories, then every conversation."""
    memory = await store.forget(person.memory)
    gone = Gone(0, 0, memory.messages, memory.bytes, memory.scrubbed)
    while names := await store.sessions(prefix=person.prefix, limit=bounds.SESSIONS_MAX):
        for name in names:
            erased = await store.forget(name)
            gone = Gone(
                gone.conversations + 1,
                gone.messages + erased.messages,
                gone.memories + erased.memories,
                gone.bytes + erased.bytes,
                gone.scrubbed and erased.scrubbed,
            )
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
        texts = [] if conversation else [_moved(one, moved, numbers) for one in messages]
        if texts:
            await store.append(person.memory, texts, key=f"load/{key}")
            counts["memories"] += len(texts)
    return counts


def _copies(lines: Iterable[str]) -> list[tuple[list[Message], str]]:
    """Whole before anything is written: a file that was cut short or is damaged loads nothing."""
    try:
        whole = list(_read(lines))
    except (StoredDataError, UsageError) as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"not a whole export: {why}. Nothing was loaded") from error
    named = [(copy, NAME.match(copy.name.decode("utf-8", "replace"))) for copy in whole]
    copies = [(copy, name[2] or "") for copy, name in named if name is not None]
    if not copies:
        raise UsageError("no conversation of this chat is in that file; nothing was loaded")
    if len(copies) > bounds.SESSIONS_MAX:
        raise LimitExceeded(f"more than {bounds.SESSIONS_MAX} conversations; nothing was loaded")
    messages = [(_messages(copy), conversation) for copy, conversation in copies]
    for one, _ in messages:
        operations.encode_batch(one)  # so that none is refused after others were written
    return messages


def _messages(copy: SessionCopy) -> list[Message]:
    """What can be seen of a session by now."""
    expires_ms = copy.copy.facts.expires_ms
    if expires_ms is not None and expires_ms <= time.time() * 1000:
        return []
    try:
        return [codec.decode(record, seq) for seq, record in copy.copy.rows]
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


def _moved(memory: Message, moved: dict[str, str], numbers: dict[tuple[str, int], int]) -> Message:
    conversation, seq = source_of(memory)
    made = {
        "conversation": moved.get(conversation, ""),
        "seq": numbers.get((conversation, seq), 0),
    }
    return Message("memory", memory.content, created_at=memory.created_at, extra={"from": made})
