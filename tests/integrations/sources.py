"""Real histories, written by each framework's own store into a real engine, and read by it."""

from __future__ import annotations

import asyncio
import json
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from agents.extensions.memory.redis_session import RedisSession
from langchain_postgres import PostgresChatMessageHistory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.storage.chat_store.postgres import PostgresChatStore
from llama_index.storage.chat_store.redis import RedisChatStore
from sqlalchemy import create_engine

from holdfast import Store
from holdfast.integrations.langchain import HoldfastChatMessageHistory
from holdfast.integrations.llama_index import HoldfastChatStore
from holdfast.integrations.openai_agents import HoldfastSession
from tests.integrations.test_langchain import EVERY_KIND as LANGCHAIN
from tests.integrations.test_llama_index import EVERY_KIND as LLAMA_INDEX
from tests.integrations.test_openai_agents import EVERY_KIND as OPENAI_AGENTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says that it is no longer kept: so people have to move
    from langchain_community.chat_message_histories import (
        RedisChatMessageHistory,
        SQLChatMessageHistory,
    )

NAMES = ("user-42", "用户:7", "a*b?[c]", "user-4")
UUIDS = tuple(str(uuid.UUID(int=number)) for number in range(1, 5))


@dataclass(frozen=True)
class Written:
    """A source: its kind, where it is, and what the framework says is in it."""

    kind: str
    url: str
    sessions: dict[str, list[Any]]
    place: str | None = None


def split(names: tuple[str, ...], messages: list[Any]) -> dict[str, list[Any]]:
    """Another part of all kinds for each session, the first with all of them."""
    return {name: messages[number:] for number, name in enumerate(names)}


def langchain_history(name: str, url: str) -> Any:
    return RedisChatMessageHistory(name, url=url)


def langchain_redis(engine: Any) -> Written:
    sessions = split(NAMES, LANGCHAIN)
    for name, messages in sessions.items():
        history = langchain_history(name, engine.url)
        history.add_messages(messages)
        history.redis_client.close()
    return Written("langchain-redis", engine.url, sessions)


def langchain_sqlite(engine: Any) -> Written:
    url = f"sqlite:///{Path(engine.data_dir) / 'langchain.db'}"
    shared = create_engine(url)
    sessions = split(NAMES, LANGCHAIN)
    for name, messages in sessions.items():
        SQLChatMessageHistory(name, connection=shared).add_messages(messages)
    shared.dispose()
    return Written("langchain-sql", url, sessions)


def langchain_postgres(engine: Any) -> Written:
    sessions = split(UUIDS, LANGCHAIN)
    with psycopg.connect(engine.url) as connection:
        PostgresChatMessageHistory.create_tables(connection, "turns")
        for name, messages in sessions.items():
            history = PostgresChatMessageHistory("turns", name, sync_connection=connection)
            history.add_messages(messages)
    return Written("langchain-sql", engine.url, sessions, "turns")


def openai_agents_sqlite(engine: Any) -> Written:
    path = Path(engine.data_dir) / "agents.db"
    sessions = split(NAMES, OPENAI_AGENTS)
    for name, items in sessions.items():
        session = SQLiteSession(name, path)
        asyncio.run(session.add_items(items))
        session.close()
    return Written("openai-agents-sql", f"sqlite:///{path}", sessions)


def openai_agents_postgres(engine: Any) -> Written:
    async def write() -> None:
        for name, items in sessions.items():
            session = SQLAlchemySession.from_url(name, url=url, create_tables=True)
            await session.add_items(items)
            await session._engine.dispose()

    url = urlsplit(engine.url)._replace(scheme="postgresql+asyncpg").geturl()
    sessions = split(NAMES, OPENAI_AGENTS)
    asyncio.run(write())
    return Written("openai-agents-sql", url, sessions)


def openai_agents_redis(engine: Any) -> Written:
    async def write() -> None:
        for name, items in sessions.items():
            session = RedisSession.from_url(name, url=engine.url)
            await session.add_items(items)
            await session.close()

    sessions = split(NAMES, OPENAI_AGENTS)
    asyncio.run(write())
    return Written("openai-agents-redis", engine.url, sessions)


def llama_index_redis(engine: Any) -> Written:
    sessions = split(NAMES, LLAMA_INDEX)
    chats = RedisChatStore(engine.url)
    for name, messages in sessions.items():
        chats.set_messages(name, messages)
    chats._redis_client.close()
    return Written("llama-index-redis", engine.url, sessions)


def llama_index_postgres(engine: Any) -> Written:
    url = urlsplit(engine.url)
    plain, awaited = (
        url._replace(scheme=f"postgresql+{driver}").geturl() for driver in ("psycopg", "asyncpg")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its tables are declared in an old way
        chats = PostgresChatStore.from_params(
            connection_string=plain, async_connection_string=awaited
        )
    sessions = split(NAMES, LLAMA_INDEX)
    for name, messages in sessions.items():
        chats.set_messages(name, messages)
    chats._session.kw["bind"].dispose()
    return Written("llama-index-postgres", engine.url, sessions)


def llama_index_json(engine: Any) -> Written:
    """Laid out by hand: `persist` of this release fails with pydantic 2.14; it reads it, though."""
    sessions = split(NAMES, LLAMA_INDEX)
    path = Path(engine.data_dir) / "chat_store.json"
    stored = {
        name: [message.model_dump(mode="json") for message in messages]
        for name, messages in sessions.items()
    }
    path.write_text(json.dumps({"store": stored, "class_name": "SimpleChatStore"}))
    assert SimpleChatStore.from_persist_path(str(path)).store == sessions
    return Written("llama-index-json", str(path), sessions)


def through_langchain(store: Store, name: str) -> list[Any]:
    return HoldfastChatMessageHistory(name, store, turns="all").messages


def through_openai_agents(store: Store, name: str) -> list[Any]:
    return asyncio.run(HoldfastSession(name, store, turns="all").get_items())


def through_llama_index(store: Store, name: str) -> list[Any]:
    return HoldfastChatStore(store, turns="all").get_messages(name)


Read = Callable[[Store, str], list[Any]]
THROUGH: dict[str, Read] = {
    "langchain": through_langchain,
    "openai": through_openai_agents,
    "llama": through_llama_index,
}


def read(written: Written, store: Store, name: str) -> list[Any]:
    """What our store shows of a session through the framework that once wrote it."""
    return THROUGH[written.kind.partition("-")[0]](store, name)
