"""What a model has said so far, kept while it speaks: a crash leaves it, marked as interrupted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Self

from holdfast.chat import bounds
from holdfast.chat.answers import Asked, is_there
from holdfast.chat.people import Person
from holdfast.contract import AsyncStore
from holdfast.errors import Conflict, EngineUnreachable, HoldfastError
from holdfast.model import Erased, Message

log: Final = logging.getLogger("holdfast.chat")

KEPT_EVERY_S: Final = 0.5
"""A crash costs at most so much of what was heard."""


class Begun:
    """The answer of one turn as far as it is heard, in a session of its own until it is whole."""

    def __init__(self, asked: Asked, check: Callable[[], Awaitable[None]]) -> None:
        self._asked = asked
        self._check = check
        self._name = asked.person.begun(asked.conversation)
        self._text = ""
        self._kept = ""
        self._keeping: asyncio.Task[None] | None = None

    def hear(self, text: str) -> None:
        """The next piece; it is written down soon, whatever the model does meanwhile."""
        self._text += text
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._keep_on())

    async def _keep_on(self) -> None:
        while self._text != self._kept:
            await asyncio.sleep(KEPT_EVERY_S)
            await self._keep()

    async def _keep(self) -> None:
        """Write down what was heard, unless its message or what it repeats was forgotten.

        Looked at once more after that: no lock keeps another process from forgetting meanwhile.
        """
        asked, text = self._asked, self._text
        try:
            async with asked.alone():
                if await self._may_stay():
                    said = Message("assistant", text, extra={"answers": asked.key})
                    await asked.store.rewrite(self._name, said)
                    self._kept = text
                    if not await self._may_stay():
                        await asked.store.forget(self._name)
        except HoldfastError as error:  # the whole answer is still to come
            log.warning("what was heard of an answer is not kept: %s", type(error).__name__)

    async def _may_stay(self) -> bool:
        """Whether neither its message nor what it repeats was forgotten."""
        asked = self._asked
        if not await is_there(asked.store, asked.person.session(asked.conversation), asked.seq):
            return False
        try:
            await self._check()
        except Conflict:
            return False
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        """Keep what was heard of an answer that was cut; forget it once the whole is there."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if isinstance(error, EngineUnreachable) and self._text != self._kept:
            await self._keep()
        elif error is None or isinstance(error, Conflict):
            await erase(self._asked.store, self._asked.person, self._asked.conversation)


async def interrupted(store: AsyncStore, person: Person, conversation: str) -> Message | None:
    """What was heard of the answer that was being made when the service ended."""
    page = await store.history(person.begun(conversation), limit=1)
    return page.messages[-1] if page.messages else None


async def erase(store: AsyncStore, person: Person, conversation: str | None = None) -> list[Erased]:
    """Forget what was heard in one conversation, or in all of them."""
    prefix, erased, last = person.begun(conversation or ""), list[Erased](), None
    while names := await store.sessions(prefix=prefix, after=last, limit=bounds.SESSIONS_MAX):
        mine = (name for name in names if conversation is None or name == prefix)
        erased += [await store.forget(name) for name in mine]
        last = names[-1]
    return erased
