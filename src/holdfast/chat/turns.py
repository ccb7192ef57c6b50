"""One turn: the message durable first, then the answer, appended whole. A retry repeats nothing.

The key of a turn comes from the page. The message is appended under it, every memory
by its message and text, and the answer under a key made from it: a retry finds what is there
and adds what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any, Final

from holdfast.chat import bounds
from holdfast.chat.answers import (
    Answerer,
    Asked,
    Delta,
    Looked,
    Made,
    is_remembered,
    is_there,
)
from holdfast.chat.begun import Begun
from holdfast.chat.noticing import memories_in
from holdfast.chat.people import Person
from holdfast.chat.person_memories import Memory, memory_of, remember
from holdfast.chat.places import Places, counted, is_full
from holdfast.contract import AsyncStore
from holdfast.errors import Conflict, EngineUnreachable, HoldfastError
from holdfast.model import Ack, Hit, Message

log: Final = logging.getLogger("holdfast.chat")

RECALLED: Final = "recalled"
"""The field of an answer with the numbers of the memories that it may repeat."""

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Sent:
    """What a page sends: the text, its key, and how far its clock is from UTC."""

    conversation: str
    text: str
    key: str
    utc_offset_minutes: int = 0
    address: str = ""
    """Where it comes from: none may use up what is there for all."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The message is durable, and what it tells is remembered. `gone`: it was forgotten since."""

    ack: Ack
    remembered: tuple[str, ...]
    gone: bool = False


class Running:
    """The events of a turn that is being answered: everybody who listens gets all of them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._more = asyncio.Condition()
        self._ended = False

    async def tell(self, kind: str, **facts: Any) -> None:
        """The next event."""
        async with self._more:
            self._events.append((kind, facts))
            self._more.notify_all()

    async def end(self) -> None:
        """There will be no further one."""
        async with self._more:
            self._ended = True
            self._more.notify_all()

    async def events(self) -> AsyncIterator[Event]:
        """From the first one on, until the end."""
        at = 0
        while True:
            async with self._more:
                while len(self._events) == at and not self._ended:
                    await self._more.wait()
                fresh = self._events[at:]
            if not fresh:
                return
            for event in fresh:
                yield event
            at += len(fresh)


class Turns:
    """Saves messages and has them answered. One for a service."""

    def __init__(self, answerer: Answerer) -> None:
        self.answerer = answerer
        self._addresses = Places(1)
        self._running: dict[tuple[str, str, str], Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: Counter[str] = Counter()
        self._people = Places(1)

    def alone(self, person: Person) -> AbstractAsyncContextManager[None]:
        """Nobody else writes memories of this person meanwhile, so none outlives a forget."""
        return self._people.held(person.id)

    @asynccontextmanager
    async def _alone(self, person: Person, address: str) -> AsyncIterator[None]:
        async with self.alone(person), self._addresses.held(address):
            yield

    async def save(self, store: AsyncStore, person: Person, sent: Sent) -> Saved:
        """Return when message and memories are as durable as the store requires."""
        session = person.session(sent.conversation)
        if is_full(self._turns, sent.address, bounds.TURNS_MAX):
            raise EngineUnreachable(
                f"{self._turns.total()} answers are being made already, as many for your address as "
                "it may have; nothing was saved. Try again"
            )
        with counted(self._turns, sent.address):
            return await self._save(store, person, sent, session)

    async def _save(self, store: AsyncStore, person: Person, sent: Sent, session: str) -> Saved:
        message = Message("user", sent.text, extra={"key": sent.key})
        async with self.alone(person):
            ack = await store.append(session, message, key=sent.key)
            if ack.repeated and not await is_there(store, session, ack.first):
                return Saved(ack, (), gone=True)
            noticed = tuple(memories_in(sent.text))
            for text in noticed:
                memory = Memory(text, None, sent.conversation, ack.first)
                await remember(store, person, memory)
        return Saved(ack, noticed)

    def is_answering(self, person: Person, conversation: str, key: object) -> bool:
        """Whether an answer to this message is being made."""
        return (person.id, conversation, key) in self._running

    def answered(self, store: AsyncStore, person: Person, sent: Sent, saved: Saved) -> Running:
        """The answer as it is made. It is made to its end even when nobody listens any more.

        Call it right after `save`: until then nobody counts it.
        """
        name = (person.id, sent.conversation, sent.key)
        running = self._running.get(name)
        if running is None:
            running = self._running[name] = Running()
            task = asyncio.create_task(self._run(running, store, person, sent, saved))
            self._tasks.add(task)
            counting = ExitStack()
            counting.enter_context(counted(self._turns, sent.address))
            counting.callback(self._running.pop, name)
            counting.callback(self._tasks.discard, task)
            task.add_done_callback(lambda _: counting.close())
        return running

    async def _run(
        self, running: Running, store: AsyncStore, person: Person, sent: Sent, saved: Saved
    ) -> None:
        try:
            await self._answer(running, store, person, sent, saved)
        except HoldfastError as error:
            log.warning("no answer: %s", type(error).__name__)
            await running.tell("failed", error=type(error).__name__, message=str(error))
        except Exception as error:
            log.exception("no answer")
            await running.tell("failed", error=type(error).__name__, message="the answer failed")
        finally:
            await running.end()

    async def _answer(
        self, running: Running, store: AsyncStore, person: Person, sent: Sent, saved: Saved
    ) -> None:
        session = person.session(sent.conversation)
        earlier = await _answer_to(store, session, sent.key, saved.ack.first)
        if earlier:
            await running.tell(
                "answered",
                messages=[shown(message) for message in earlier],
                durability=store.durability.name,
                repeated=True,
            )
            return
        zone = timezone(timedelta(minutes=sent.utc_offset_minutes))
        now = datetime.now(UTC).astimezone(zone)
        seq = saved.ack.first
        place = partial(self._addresses.held, sent.address)
        alone = partial(self._alone, person, sent.address)
        asked = Asked(store, person, sent.conversation, sent.text, sent.key, seq, now, place, alone)
        recalled: set[int] = set()
        async with Begun(asked, lambda: _check_remembered(asked, recalled)) as begun:
            async for piece in self.answerer.answer(asked):
                if isinstance(piece, Delta):
                    begun.hear(piece.text)
                    await running.tell("delta", text=piece.text)
                elif isinstance(piece, Looked):
                    recalled |= {hit.seq for hit in piece.hits if hit.kind == "memory"}
                    await running.tell("looked", **seen(piece))
                else:
                    await self._keep(running, asked, session, piece, sorted(recalled))

    async def _keep(
        self, running: Running, asked: Asked, session: str, made: Made, recalled: list[int]
    ) -> None:
        # A forget is before it, and the answer would bring back what is gone; or after it, and
        # finds the answer.
        async with asked.alone():
            if await is_there(asked.store, session, asked.seq):
                await _check_remembered(asked, recalled)
            ack = await append_answer(asked, session, made.messages, recalled)
        if ack is None:
            await running.tell("gone")
            return
        kept = await asked.store.history(session, after=ack.first - 1, before=ack.last + 1)
        await running.tell(
            "answered",
            messages=[shown(message) for message in kept],
            durability=ack.durability.name,
            repeated=ack.repeated,
        )

    async def close(self, timeout_s: float = 5.0) -> None:
        """Let the answers that are being made come to their end, for a while."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            for task in late:
                task.cancel()


async def _check_remembered(asked: Asked, recalled: Iterable[int]) -> None:
    for number in recalled:
        if not await is_remembered(asked.store, asked.person.memories, number):
            raise Conflict(
                "what the answer repeats was forgotten meanwhile; your message is saved, the "
                "answer is not. Ask again"
            )


async def append_answer(
    asked: Asked, session: str, messages: tuple[Message, ...], recalled: list[int]
) -> Ack | None:
    """All messages of an answer or none; None if what it answers was forgotten meanwhile.

    Each says which memories it may repeat.
    """
    marks = {"answers": asked.key} | ({RECALLED: recalled} if recalled else {})
    marked = [Message(one.role, one.content, extra={**one.extra, **marks}) for one in messages]
    for _ in range(bounds.CONFLICT_TRIES):
        end = await asked.store.history(session, after=asked.seq - 1, limit=1)
        if not end.messages or end.messages[0].seq != asked.seq:
            return None
        try:
            return await asked.store.append(
                session, marked, key=f"answer/{asked.key}", expect=end.last
            )
        except Conflict:
            continue
    raise Conflict("the conversation changed at each try; the answer is not saved. Ask again")


async def _answer_to(store: AsyncStore, session: str, key: str, seq: int) -> list[Message]:
    page = await store.history(session, after=seq, limit=bounds.PAGE_MESSAGES)
    return [message for message in page if message.extra.get("answers") == key]


def shown(message: Message) -> dict[str, Any]:
    """A message as the page gets it."""
    at = None if message.created_at is None else message.created_at.isoformat()
    return {
        "seq": message.seq,
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "at": at,
        "key": message.extra.get("key"),
        "answers": message.extra.get("answers"),
        "tool_calls": message.extra.get("tool_calls"),
    }


def seen(looked: Looked) -> dict[str, Any]:
    """A look into memory as the page gets it."""
    return {
        "hits": [found(hit) for hit in looked.hits],
        "behind": looked.behind,
        "failed": looked.failed,
    }


def found(hit: Hit) -> dict[str, Any]:
    """A memory that was found, as the page gets it."""
    return shown_memory(hit.message) | {"score": round(hit.score, 3)}


def shown_memory(message: Message) -> dict[str, Any]:
    """A memory as the page gets it; its number is its id."""
    memory = memory_of(message)
    return {
        "id": str(message.seq),
        "text": memory.text,
        "at": None if memory.said_at is None else memory.said_at.isoformat(),
        "conversation": memory.conversation,
        "seq": memory.seq,
    }
