"""Our store as a memory block of LlamaIndex: what leaves the short-term memory is found again by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.integrations import framework_operations
from holdfast.integrations.framework_operations import StepRunner
from holdfast.integrations.llama_index import to_holdfast
from holdfast.model import Hit, Recalled
from holdfast.runner import Steps

try:
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[llama-index]'") from error

ROOT: Final = "llama_index.memory/"
"""How the ids of its sessions begin: a chat store may have the same id for the conversation itself."""
DEFAULT_SESSION: Final = "default"


class HoldfastMemoryBlock(BaseMemoryBlock[str]):
    """Keeps each message that leaves the short-term memory, and finds those that fit what is said now.

    `Memory.from_defaults(session_id=…, memory_blocks=[HoldfastMemoryBlock(store)])`. What one call puts is
    there as a whole, or not at all. Each session of LlamaIndex has a log of its own; with `scope` ("user-42",
    say) all that use this block share one. It needs the extra `recall`.
    """

    name: str = Field(default="RetrievedMessages", description="The name of the memory block.")
    k: int = Field(default=5, gt=0, description="How many messages are shown.")
    window: int = Field(default=3, gt=0, description="How many of the newest are looked for.")
    scope: str | None = Field(default=None, description="What shares one memory; else a session.")

    _runner: StepRunner = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, **settings: Any) -> None:
        super().__init__(**settings)
        self._runner = StepRunner(store)

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,
        session_id: str | None = None,
    ) -> None:
        """Append them as one batch. The messages themselves are not changed."""
        if from_short_term_memory and not self.accept_short_term_memory:
            return
        listed = [to_holdfast(message) for message in messages]
        await self._runner.wait(framework_operations.add(self._log(session_id), listed))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self.aput(messages)

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        session_id: str | None = None,
        **block_kwargs: Any,
    ) -> str:
        """The best that fit the newest messages, each with who said it; empty where none does."""
        del block_kwargs
        query = _text_of((messages or [])[-self.window :])
        if not query:
            return ""
        found = await self._runner.wait(_recall(self._log(session_id), query, self.k))
        return "\n".join(_line(hit) for hit in found)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Without the messages that fit least, each token being four letters; None if none is left."""
        lines, letters = content.split("\n"), 4 * tokens_to_truncate
        while lines and letters > 0:
            letters -= len(lines.pop())
        return "\n".join(lines) or None

    async def aforget(self, session_id: str | None = None) -> None:
        """Erase what was put for a session (or for the scope), for good."""
        await self._runner.wait(framework_operations.forget(self._log(session_id)))

    def _log(self, session_id: str | None) -> str:
        return f"{ROOT}{self.scope or session_id or DEFAULT_SESSION}"


def _recall(log: str, query: str, k: int) -> Steps[Recalled]:
    found: Recalled = yield lambda store: store.recall(log, query, k=k)
    return found


def _text_of(messages: Sequence[ChatMessage]) -> str:
    return " ".join(message.content for message in messages if message.content)


def _line(hit: Hit) -> str:
    """A message on one line."""
    return f"<message role='{hit.message.role}'>{' '.join(hit.text.split())}</message>"
