"""LlamaIndex's chat store on Redis."""

from __future__ import annotations

from typing import Any, Final

from holdfast.verify.adapters.frameworks import CLAIMS, imported
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

CODE: Final = ("llama_index.storage.chat_store",)
"""Where a crash at a line is tried: the framework's own store."""


class ChatStore:
    """It adds message by message; there is no call for a whole turn."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._llms = imported("llama_index.core.llms", "llama-index")

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        """As an application does it: one after the other."""
        for message in messages:
            rest = {name: message[name] for name in message if name not in ("role", "content")}
            theirs = self._llms.ChatMessage(
                role=message["role"], content=message["content"], additional_kwargs=rest
            )
            self._store.add_message(session, theirs)

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """The newest `limit` of everything."""
        found = self._store.get_messages(session)
        shown = found if limit is None else found[len(found) - min(limit, len(found)) :]
        return [
            {"role": message.role.value, "content": message.content, **message.additional_kwargs}
            for message in shown
        ]

    def forget(self, session: str) -> None:
        """Delete it."""
        self._store.delete_messages(session)


def redis(engine: Engine) -> Target:
    """`RedisChatStore`."""

    def open_store() -> ChatStore:
        stores = imported("llama_index.storage.chat_store.redis", "llama-index")
        return ChatStore(stores.RedisChatStore(redis_url=engine.url))

    return Target(
        open=open_store, engine=engine, claims=CLAIMS, code=CODE, name="llama-index RedisChatStore"
    )
