"""The service's one store: connected when the engine is there, proven ready by a write."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any, Final

from holdfast.chat import bounds
from holdfast.chat.person_memories import move_old_memories
from holdfast.connection import connect_async
from holdfast.contract import AsyncStore
from holdfast.errors import EngineUnreachable, HoldfastError, NotApplied
from holdfast.model import Durability, Message
from holdfast.secrets import SecretUrl

log: Final = logging.getLogger("holdfast.chat")

CANARY: Final = "ready"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Which store a service is over."""

    url: SecretUrl
    namespace: str
    require: Durability
    embedder: str | None = None
    index: SecretUrl | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether a write was just acknowledged on the level that is required, and if not, why."""

    ready: bool
    why: str = ""
    level: str = ""


class Link:
    """A store that may not be there yet. Every failure is an error of the tree."""

    def __init__(self, options: ChatOptions) -> None:
        self.options = options
        self.risks: list[str] = []
        self._store: AsyncStore | None = None
        self._connecting = asyncio.Lock()
        self._proving = asyncio.Lock()
        self._proven_at_s = float("-inf")
        self._proof = Ready(ready=False, why="no write was tried yet")

    async def store(self) -> AsyncStore:
        """The store; `EngineUnreachable` while it cannot be reached, `Refused` if it is too weak."""
        if self._store is None:
            async with self._connecting:
                if self._store is None:
                    self._store = await self._connect()
        return self._store

    async def _connect(self) -> AsyncStore:
        options = self.options
        # Only memories are recalled, and recall indexes them. Turns and the canary never are.
        more: dict[str, Any] = {
            "namespace": options.namespace,
            "embedder": options.embedder,
            "index": options.index and options.index.reveal(),
            "background_indexing": False,
        }
        with warnings.catch_warnings(record=True) as noticed:
            warnings.simplefilter("always")
            try:
                store = await asyncio.wait_for(
                    connect_async(options.url.reveal(), require=options.require, **more),
                    bounds.CONNECT_TIMEOUT_S,
                )
            except TimeoutError as error:
                raise EngineUnreachable(
                    f"the store did not answer within {bounds.CONNECT_TIMEOUT_S:g} s",
                    operation="connect",
                ) from error
        self.risks = [str(warning.message) for warning in noticed]
        try:
            await move_old_memories(store)
        except BaseException:
            await store.close()
            raise
        return store

    async def ready(self) -> Ready:
        """Proven by a write that is acknowledged as required, not older than a second."""
        async with self._proving:
            if time.monotonic() - self._proven_at_s >= bounds.CANARY_EVERY_S:
                self._proof = await self._prove()
                self._proven_at_s = time.monotonic()
            return self._proof

    async def _prove(self) -> Ready:
        try:
            store = await self.store()
            note = Message("system", "the store takes writes")
            ack = await asyncio.wait_for(store.rewrite(CANARY, note), bounds.CANARY_TIMEOUT_S)
        except TimeoutError:
            why = f"a write was not acknowledged within {bounds.CANARY_TIMEOUT_S:g} s"
            return Ready(ready=False, why=why)
        except NotApplied as error:
            return Ready(ready=False, why=str(error))
        except HoldfastError as error:
            return Ready(ready=False, why=f"{type(error).__name__}: {error}")
        return Ready(ready=True, level=ack.durability.name)

    async def warm(self) -> None:
        """Load what recall needs now, so that nobody's first question waits for it."""
        try:
            await (await self.store()).recall(CANARY, "warm")
        except HoldfastError as error:
            log.warning("memory cannot be searched yet: %s", error)

    async def close(self) -> None:
        """Let go of the engine."""
        if self._store is not None:
            await self._store.close()
