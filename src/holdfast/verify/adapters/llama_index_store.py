"""LlamaIndex's chat store on Redis."""

from __future__ import annotations

from typing import Any, Final

from holdfast.contract import Store
from holdfast.verify.adapters.frameworks import CLAIMS, holdfast_target, imported, newest
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
            self._store.add_message(session, self._theirs(message))

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """The newest `limit` of everything."""
        return newest(self._store.get_messages(session), limit, self._as_turn)

    def forget(self, session: str) -> None:
        """Delete it."""
        self._store.delete_messages(session)

    def _theirs(self, message: dict[str, Any]) -> Any:
        rest = {name: message[name] for name in message if name not in ("role", "content")}
        return self._llms.ChatMessage(
            role=message["role"], content=message["content"], additional_kwargs=rest
        )

    @staticmethod
    def _as_turn(message: Any) -> dict[str, Any]:
        return {"role": message.role.value, "content": message.content, **message.additional_kwargs}


class OurChatStore(ChatStore):
    """Our store as LlamaIndex's chat store, with the one call for a turn that it adds."""

    def __init__(self, store: Store) -> None:
        module = imported("holdfast.integrations.llama_index", "llama-index")
        super().__init__(module.HoldfastChatStore(store, turns="all"))
        self._opened = store

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        """One call for the whole turn."""
        theirs = [self._theirs(message) for message in messages]
        self._store.add_messages(session, theirs, once=key)

    def close(self) -> None:
        """Close the store."""
        self._opened.close()


def holdfast(engine: Engine) -> Target:
    """Our store, as `HoldfastChatStore`."""
    return holdfast_target(engine, OurChatStore, f"holdfast on {engine.kind}, through llama-index")


def redis(engine: Engine) -> Target:
    """`RedisChatStore`."""

    def open_store() -> ChatStore:
        stores = imported("llama_index.storage.chat_store.redis", "llama-index")
        return ChatStore(stores.RedisChatStore(redis_url=engine.url))

    return Target(
        open=open_store, engine=engine, claims=CLAIMS, code=CODE, name="llama-index RedisChatStore"
    )
