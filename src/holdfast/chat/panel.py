"""What is remembered of a person: shown, searched, deleted, forgotten, exported, loaded."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Any, TypeVar, cast

from holdfast import codec, operations
from holdfast.chat import begun, bounds
from holdfast.chat.answers import is_there, texts_in
from holdfast.chat.companion import LIKELY
from holdfast.chat.people import NAME, Person
from holdfast.chat.person_memories import Memory, memory_of, remember
from holdfast.chat.turns import RECALLED, found, shown, shown_memory
from holdfast.commands import ERASED, MEMORIES
from holdfast.contract import AsyncStore
from holdfast.errors import Conflict, LimitExceeded, StoredDataError, UsageError
from holdfast.model import Erased, History, Message
from holdfast.transfer import Reader, SessionCopy

TITLE_CHARS = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gone:
    """How much was erased, all together."""

    conversations: int = 0
    messages: int = 0
    memories: int = 0
    bytes: int = 0
    scrubbed: bool = True
    quoted_in: tuple[str, ...] = ()
    """Conversations that stay, in which it was said or an answer may repeat it."""

    def plus(self, erased: Erased, *, conversations: int = 0) -> Gone:
        """With what one more call has erased."""
        return Gone(
            self.conversations + conversations,
            self.messages + erased.messages,
            self.memories + erased.memories,
            self.bytes + erased.bytes,
            self.scrubbed and erased.scrubbed,
        )

    def quoted(self, conversations: Iterable[str]) -> Gone:
        """The same, with where it can still be read; then a copy is left."""
        names = tuple(dict.fromkeys(conversations))
        return replace(self, quoted_in=names, scrubbed=self.scrubbed and not names)


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


async def conversation(
    store: AsyncStore, person: Person, name: str, before: int | None
) -> dict[str, Any]:
    """A page of it, oldest first; `interrupted` is what was heard of an answer that never came."""
    page = await store.history(person.session(name), limit=bounds.PAGE_MESSAGES, before=before)
    cut = None if before is not None else await begun.interrupted(store, person, name)
    waiting = {one.extra.get("key") for one in page} - {one.extra.get("answers") for one in page}
    return {
        "messages": [shown(message) for message in page],
        "damaged": [asdict(damage) for damage in page.damaged],
        "last": page.last,
        "state": page.state.value,
        "durability": store.durability.name,
        "interrupted": shown(cut) if cut and cut.extra.get("answers") in waiting else None,
    }


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
    """Those that fit by meaning or hold the words, best first; `behind` says how many were not looked at."""
    hits = await store.recall(person.memories, query, k=bounds.RECALLED * 2)
    words = query.strip().casefold()
    fitting = [hit for hit in hits if hit.score >= LIKELY or words in hit.text.casefold()]
    return {"behind": hits.behind, "memories": [found(hit) for hit in fitting]}


async def forget_conversation(store: AsyncStore, person: Person, conversation: str) -> Gone:
    """The conversation and what is remembered from it, memories first: then a retry finds it."""
    session = person.session(conversation)
    kept = await store.memories(person.memories)
    if kept.damaged:
        raise Conflict(
            f"{len(kept.damaged)} memories cannot be read, so what they come from is not known. "
            "Nothing was deleted"
        )
    gone, mine = Gone(), []
    for one in kept:
        if one.seq and memory_of(one).conversation == conversation:
            gone = gone.plus(await store.forget_memory(person.memories, one.seq))
            mine.append(one)
    # Any of them may repeat a memory.
    for erased in await begun.erase(store, person, None if mine else conversation):
        gone = gone.plus(erased)
    gone = gone.plus(await store.forget(session), conversations=1)
    return gone.quoted(await _quoting(store, person, mine))


async def forget_memory(store: AsyncStore, person: Person, number: int) -> Gone:
    """One memory; what it comes from stays, and is named."""
    page = await store.memories(person.memories, after=number - 1, before=number + 1)
    gone = Gone().plus(await store.forget_memory(person.memories, number))
    for erased in await begun.erase(store, person):  # any of them may repeat it
        gone = replace(gone, scrubbed=gone.scrubbed and erased.scrubbed)
    sources = [
        one.conversation
        for one in map(memory_of, page)
        if one.conversation and await is_there(store, person.session(one.conversation), one.seq)
    ]
    return gone.quoted(sources + await _quoting(store, person, page.messages))


async def _quoting(store: AsyncStore, person: Person, gone: Sequence[Message]) -> list[str]:
    """The conversations of which an answer may repeat one of these memories."""
    numbers, texts = {one.seq for one in gone}, {memory_of(one).text for one in gone}
    found: list[str] = []
    last: str | None = None
    while gone and (
        names := await store.sessions(
            prefix=person.conversations, after=last, limit=bounds.SESSIONS_MAX
        )
    ):
        found += [name for name in names if await _repeats(store, name, numbers, texts)]
        last = names[-1]
    return [name.removeprefix(person.conversations) for name in found]


async def _repeats(
    store: AsyncStore, session: str, numbers: set[int | None], texts: set[str]
) -> bool:
    after = 0
    while page := await store.history(session, after=after, limit=bounds.LOAD_PIECE_MESSAGES):
        for one in page:
            marked = one.extra.get(RECALLED)
            if isinstance(marked, list) and numbers.intersection(marked):
                return True
            if one.role == "tool" and texts.intersection(texts_in(one.content)):
                return True
        after = page[-1].seq or page.last
    return False


async def forget_all(store: AsyncStore, person: Person) -> Gone:
    """Everything of a person: memories, then every conversation."""
    kept = await store.memories(person.memories)
    erased = await store.forget(person.memories)
    # The engine counts what stands in the place of erased ones too.
    gone = Gone().plus(replace(erased, memories=len(kept) + len(kept.damaged)))
    while names := await store.sessions(prefix=person.prefix, limit=bounds.SESSIONS_MAX):
        for name in names:
            whole = name.startswith(person.conversations)
            gone = gone.plus(await store.forget(name), conversations=int(whole))
    return gone


async def exported(store: AsyncStore, person: Person) -> AsyncIterator[bytes]:
    """Everything of a person, as `holdfast export` writes it."""
    async for line in store.export(prefix=person.prefix):
        yield f"{line}\n".encode()


async def load(store: AsyncStore, person: Person, file: IO[bytes], key: str) -> dict[str, int]:
    """Add what an export holds, as conversations of this person; once for each key.

    They get new ids, made from the key, so that nothing that is there is touched, whosever
    export it is, and what was forgotten or has expired stays so. The file is read twice, in a
    thread: a file that was cut short or is damaged loads nothing, and no more of it than one
    session is held at a time.
    """
    memories = await asyncio.to_thread(_check, file)
    wanted = {(one.conversation, one.seq) for one in memories}
    counts = {"conversations": 0, "messages": 0, "memories": 0}
    numbers: dict[tuple[str, int], int] = {}
    async for conversation, at, messages in _in_thread(_pieces(file)):
        session = person.session(_moved(key, conversation))
        ack = await store.append(session, messages, key=f"{key}/{at}")
        for new, old in enumerate(messages, ack.first):
            if (conversation, old.seq or 0) in wanted:
                numbers[conversation, old.seq or 0] = new
        counts["conversations"] += at == 0
        counts["messages"] += len(messages)
    for memory in memories:
        seq = numbers.get((memory.conversation, memory.seq), 0)
        source = _moved(key, memory.conversation) if seq else ""
        moved = replace(memory, conversation=source, seq=seq)
        await remember(store, person, moved, key=f"load/{key}/{counts['memories']}")
        counts["memories"] += 1
    return counts


def _moved(key: str, conversation: str) -> str:
    """The new id of a conversation."""
    return hashlib.sha256(f"{key}/{conversation}".encode()).hexdigest()[:24]


async def _in_thread(work: Iterator[T]) -> AsyncIterator[T]:
    """What an iterator gives, each made in a thread: the event loop goes on meanwhile."""
    end = object()
    while (one := await asyncio.to_thread(next, work, end)) is not end:
        yield cast("T", one)


def _check(file: IO[bytes]) -> list[Memory]:
    """Whether all of it can be loaded, so that none is refused after others were written."""
    found, memories = 0, []
    try:
        for copy, conversation in _copies(file):
            found += 1
            messages = _messages(copy)
            operations.encode_batch(messages)
            if not conversation:
                memories += [one for one in map(memory_of, messages) if one.text.strip()]
    except (StoredDataError, UsageError, UnicodeDecodeError) as error:
        why = str(error).partition(". ")[0]
        kind = LimitExceeded if isinstance(error, LimitExceeded) else UsageError
        raise kind(f"not a whole export: {why}. Nothing was loaded") from error
    if not found:
        raise UsageError("no conversation of this chat is in that file; nothing was loaded")
    if found > bounds.SESSIONS_MAX:
        raise LimitExceeded(f"more than {bounds.SESSIONS_MAX} conversations; nothing was loaded")
    if len(memories) > bounds.LOAD_MEMORIES_MAX:
        raise LimitExceeded(f"more than {bounds.LOAD_MEMORIES_MAX} memories; nothing was loaded")
    return memories


def _pieces(file: IO[bytes]) -> Iterator[tuple[str, int, list[Message]]]:
    """Conversation, place, and a few messages of it; the next when those are written."""
    for copy, conversation in _copies(file):
        if conversation:
            messages = _messages(copy)
            for at in range(0, len(messages), bounds.LOAD_PIECE_MESSAGES):
                yield conversation, at, messages[at : at + bounds.LOAD_PIECE_MESSAGES]


def _copies(file: IO[bytes]) -> Iterator[tuple[SessionCopy, str]]:
    """What is of a chat in the file, one after the other; "" for memories."""
    file.seek(0)
    for copy in _read(_light(line).decode("utf-8") for line in file):  # cut at newlines only
        conversation = _conversation(copy.name)
        if conversation is not None:
            yield copy, conversation


def _light(data: bytes) -> bytes:
    """The same JSON, if it is parsed in a moment: until its end no other thread goes on."""
    if sum(map(data.count, (b"{", b"[", b":", b","))) > bounds.LOAD_LINE_VALUES_MAX:
        most = f"{bounds.LOAD_LINE_VALUES_MAX:,}"
        raise LimitExceeded(f"a line has more than {most} values. Nothing was loaded")
    return data


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
        found = [
            codec.decode(_light(record), seq) for seq, record in copy.copy.rows if record != ERASED
        ]
    except StoredDataError as error:
        raise UsageError(f"a message cannot be read: {error}. Nothing was loaded") from error
    # Numbers of memories are those of the store that it comes from.
    return [replace(one, extra=_without(one.extra, RECALLED)) for one in found]


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _read(lines: Iterable[str]) -> Iterator[SessionCopy]:
    reader = Reader()
    for line in lines:
        copy = reader.feed(line)
        if copy is not None:
            reader.count(copy, written=True)
            yield copy
    reader.finish()
