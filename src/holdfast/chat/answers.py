"""What an answer is made of, by any author: the companion here, or a model behind a URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from holdfast.chat import bounds
from holdfast.chat.companion import LIKELY, Remembered, reply
from holdfast.chat.noticing import MEMORIES_PER_MESSAGE
from holdfast.chat.people import Person
from holdfast.chat.person_memories import memory_of
from holdfast.contract import AsyncStore
from holdfast.errors import HoldfastError
from holdfast.model import Hit, Message, Recalled, Source


@dataclass(frozen=True, slots=True)
class Asked:
    """One turn that waits for its answer."""

    store: AsyncStore
    person: Person
    conversation: str
    text: str
    key: str
    seq: int
    now: datetime
    place: Callable[[], AbstractAsyncContextManager[None]]
    """Held for what is work, and not while a model thinks: of each address one at a time."""
    alone: Callable[[], AbstractAsyncContextManager[None]]
    """Nobody else writes memories of this person meanwhile; then a place."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Memories that were looked at for the answer."""

    hits: tuple[Hit, ...]
    behind: int = 0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Made:
    """The whole answer: its tool calls, their results and the text, to be appended as one."""

    messages: tuple[Message, ...] = field(default=())


class Answerer(Protocol):
    """Answers a turn that is durable already."""

    name: str

    def answer(self, asked: Asked) -> AsyncIterator[Looked | Delta | Made]:
        """Pieces in order; the last one is `Made`."""


async def look(asked: Asked, query: str) -> Looked:
    """What is remembered of a person that fits, but for what this very turn has told."""
    try:
        found: Recalled = await asked.store.recall(
            asked.person.memories,
            query[: bounds.QUERY_CHARS_MAX],
            k=bounds.RECALLED + MEMORIES_PER_MESSAGE,
        )
    except HoldfastError as error:
        return Looked((), failed=str(error))
    here = Source(asked.person.session(asked.conversation), asked.seq, asked.seq)
    earlier = [hit for hit in found if hit.source != here]
    return Looked(tuple(earlier[: bounds.RECALLED]), found.behind)


async def is_remembered(store: AsyncStore, scope: str, number: int) -> bool:
    """Whether a memory has not been forgotten."""
    page = await store.memories(scope, after=number - 1, before=number + 1)
    return bool(page.messages or page.damaged)


async def is_there(store: AsyncStore, session: str, seq: int) -> bool:
    """Whether a message has not been forgotten."""
    page = await store.history(session, after=seq - 1, before=seq + 1)
    return bool(page.messages or page.damaged)


def call_and_result(call_id: str, query: str, looked: Looked) -> tuple[Message, Message]:
    """A look into memory as chat APIs write it: the call, and what it gave."""
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "recall", "arguments": json.dumps({"query": query})},
    }
    return (
        Message("assistant", None, extra={"tool_calls": [call]}),
        Message("tool", found_text(looked), extra={"tool_call_id": call_id, "name": "recall"}),
    )


def found_text(looked: Looked) -> str:
    """What was found, for the reader of a tool's result."""
    if looked.failed:
        return f"memory could not be searched: {looked.failed}"
    found = [
        {
            "text": hit.text,
            "said_at": _iso(memory_of(hit.message).said_at),
            "score": round(hit.score, 3),
        }
        for hit in looked.hits
    ]
    return json.dumps(found, ensure_ascii=False)


def texts_in(result: object) -> set[str]:
    """The texts that a tool's result holds, as `found_text` writes them."""
    try:
        found = json.loads(result) if isinstance(result, str) else []
    except (ValueError, RecursionError):
        return set()
    rows = found if isinstance(found, list) else []
    return {str(one.get("text")) for one in rows if isinstance(one, dict)}


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")


def fitting(looked: Looked) -> Looked:
    """Without the hits that no answer would mention."""
    hits = tuple(hit for hit in looked.hits if hit.score >= LIKELY)
    return Looked(hits, looked.behind, looked.failed)


class Companion:
    """Needs no model: says back what it was told, with the day on which it was told."""

    name = "companion"

    def __init__(self) -> None:
        # A look computes: many at once would take the machine from those who want to be saved.
        self._looking = asyncio.Semaphore(bounds.LOOKS_AT_ONCE)

    async def answer(self, asked: Asked) -> AsyncIterator[Looked | Delta | Made]:
        """Look into memory, then answer from it; the text comes word by word."""
        async with asked.place(), self._looking:
            looked = fitting(await look(asked, asked.text))
        yield looked
        text = self._text(asked, looked)
        for piece in pieces(text):
            yield Delta(piece)
        called = call_and_result(f"recall-{asked.seq}", asked.text, looked)
        yield Made((*called, Message("assistant", text)))

    def _text(self, asked: Asked, looked: Looked) -> str:
        if looked.failed:
            return f"Your message is saved, but I cannot look into my memory now: {looked.failed}"
        remembered = [
            Remembered(hit.text, memory_of(hit.message).said_at, hit.score) for hit in looked.hits
        ]
        return reply(asked.text, remembered, asked.now, behind=looked.behind)


def pieces(text: str, words: int = 4) -> Sequence[str]:
    """A text in pieces of a few words; put together they are the text."""
    parts = text.split(" ")
    cut = [" ".join(parts[at : at + words]) for at in range(0, len(parts), words)]
    return [one if at == 0 else f" {one}" for at, one in enumerate(cut)]
