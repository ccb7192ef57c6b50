"""LangChain's chat message histories: Redis, and SQL on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.contract import Store
from holdfast.verify.adapters.frameworks import CLAIMS, holdfast_target, imported, newest
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

_HISTORIES: Final = "langchain_community.chat_message_histories"
_CLASSES: Final = {"user": "HumanMessage", "assistant": "AIMessage", "system": "SystemMessage"}

CODE: Final = ("langchain_community.chat_message_histories", "langchain_core.chat_history")
"""Where a crash at a line is tried: the framework's own store."""


class Histories:
    """One history object for each conversation. It reads all, so the newest N are cut here."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._messages = imported("langchain_core.messages", "langchain")
        self._made: dict[str, Any] = {}

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        """One call for the whole turn: as atomic as the framework makes it."""
        self._of(session).add_messages([self._theirs(message) for message in messages])

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """The newest `limit` of everything."""
        return newest(self._of(session).messages, limit, self._as_turn)

    def forget(self, session: str) -> None:
        """Clear it."""
        self._of(session).clear()

    def _of(self, session: str) -> Any:
        if session not in self._made:
            self._made[session] = self._make(session)
        return self._made[session]

    def _theirs(self, message: dict[str, Any]) -> Any:
        rest = {name: message[name] for name in message if name not in ("content", "id")}
        made = getattr(self._messages, _CLASSES.get(message["role"], "HumanMessage"))
        return made(message["content"], id=message["id"], additional_kwargs=rest)

    @staticmethod
    def _as_turn(message: Any) -> dict[str, Any]:
        return {"content": message.content, "id": message.id, **message.additional_kwargs}


class OurHistories(Histories):
    """Our store as LangChain's history: the same calls, and a key where one is given."""

    def __init__(self, store: Store) -> None:
        made = imported("holdfast.integrations.langchain", "langchain").HoldfastChatMessageHistory
        super().__init__(lambda session: made(session, store, turns="all"))
        self._store = store

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        """One call for the whole turn."""
        theirs = [self._theirs(message) for message in messages]
        self._of(session).add_messages(theirs, key=key)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def holdfast(engine: Engine) -> Target:
    """Our store, as `HoldfastChatMessageHistory`."""
    return holdfast_target(engine, OurHistories, f"holdfast on {engine.kind}, through langchain")


def redis(engine: Engine) -> Target:
    """`RedisChatMessageHistory`."""

    def open_store() -> Histories:
        made = imported(_HISTORIES, "langchain").RedisChatMessageHistory
        return Histories(lambda session: made(session, url=engine.url))

    name = "langchain RedisChatMessageHistory"
    return Target(open=open_store, engine=engine, claims=CLAIMS, code=CODE, name=name)


def sqlite(engine: Engine) -> Target:
    """`SQLChatMessageHistory` in a SQLite file."""
    assert engine.data_dir is not None  # noqa: S101 - SQLite is a file
    return _sql(engine, f"sqlite:///{Path(engine.data_dir) / 'langchain.db'}")


def postgres(engine: Engine) -> Target:
    """`SQLChatMessageHistory` on PostgreSQL, through psycopg 3."""
    url = urlsplit(engine.url)._replace(scheme="postgresql+psycopg").geturl()
    return _sql(engine, url)


def _sql(engine: Engine, url: str) -> Target:
    def open_store() -> Histories:
        made = imported(_HISTORIES, "langchain").SQLChatMessageHistory
        shared = imported("sqlalchemy", "langchain").create_engine(url)
        return Histories(lambda session: made(session, connection=shared))

    name = "langchain SQLChatMessageHistory"
    return Target(open=open_store, engine=engine, claims=CLAIMS, code=CODE, name=name)
