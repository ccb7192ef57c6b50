"""A memory as the chat sees it, kept by the store's `remember`; and those of earlier releases."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.chat.people import NAME, OLD_MEMORY, PEOPLE, Person, is_conversation
from holdfast.contract import AsyncStore
from holdfast.model import Ack, Message, Source

log: Final = logging.getLogger("holdfast.chat")

PAGE_SESSIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class Memory:
    """A text, when it was said, and the message that it comes from ("" and 0: not known)."""

    text: str
    said_at: datetime | None
    conversation: str = ""
    seq: int = 0


def memory_of(message: Message) -> Memory:
    """From a record of this release or an earlier one; a loaded file may hold anything."""
    text = message.content if isinstance(message.content, str) else ""
    made, meta = message.extra.get("from"), message.extra.get("meta")
    made = made if isinstance(made, dict) else {}
    name = NAME.match(str(made.get("session", "")))
    conversation = name[3] if name else made.get("conversation")
    seq = made.get("first", made.get("seq"))
    said_at = _time(meta.get("said_at")) if isinstance(meta, dict) else None
    at = said_at or message.created_at
    if not is_conversation(conversation) or not isinstance(seq, int) or seq < 1:
        return Memory(text, at)
    return Memory(text, at, str(conversation), seq)


def _time(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at if at.tzinfo else None


async def remember(
    store: AsyncStore, person: Person, memory: Memory, *, key: str | None = None
) -> Ack:
    """Once, however often it is tried: by its source and text, or by `key` if it has no source."""
    meta = None if memory.said_at is None else {"said_at": memory.said_at.isoformat()}
    source = None
    if memory.conversation:
        source, key = Source(person.session(memory.conversation), memory.seq, memory.seq), None
    return await store.remember(person.memories, memory.text, meta=meta, key=key, source=source)


async def move_old_memories(store: AsyncStore) -> None:
    """Move what an earlier release kept as the messages of a session `u/<person>/memory`.

    Killed anywhere, it goes on at the next opening: a memory is remembered once however often
    that is tried, and the session is forgotten after the last one.
    """
    after: str | None = None
    while names := await store.sessions(prefix=PEOPLE, after=after, limit=PAGE_SESSIONS):
        for name in names:
            if name.endswith(OLD_MEMORY) and (found := NAME.match(name)):
                await _move(store, Person(found[1]), name)
        after = names[-1]


async def _move(store: AsyncStore, person: Person, session: str) -> None:
    page = await store.history(session)
    for old in page:
        memory = memory_of(old)
        if memory.text.strip():
            await remember(store, person, memory, key=f"moved/{old.id}")
    if page.damaged:
        log.warning(
            "%d memories of an earlier release cannot be read; they stay in the session %s",
            len(page.damaged),
            session,
        )
    else:
        await store.forget(session)
