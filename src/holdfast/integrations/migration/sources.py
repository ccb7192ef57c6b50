"""Which stores of which frameworks can be read, by name, and what their messages look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.errors import UsageError
from holdfast.integrations import agent_forms, forms
from holdfast.integrations.migration.found import Source
from holdfast.integrations.migration.llama_index_file import PersistedFile
from holdfast.integrations.migration.redis_lists import Lists
from holdfast.integrations.migration.sql import Table, Tables
from holdfast.model import Message


@dataclass(frozen=True, slots=True)
class Kind:
    """One store of one framework."""

    about: str
    message: Callable[..., Message]
    open: Callable[[str, str], Source]
    """Of a URL, and of a table or a prefix of keys."""
    place: str = ""
    """The table, or the prefix, where nothing else is said."""
    shared: bool = False
    """Other things may lie among its sessions: a list without any message is none of them."""


def _table(session: str, message: str, *, array: bool = False) -> Callable[[str, str], Source]:
    return lambda url, place: Tables(url, Table(place, session, message, array))


def _lists(
    suffix: str = "", *, newest_first: bool = False, encoded: str = ""
) -> Callable[[str, str], Source]:
    return lambda url, place: Lists(url, place, suffix, newest_first=newest_first, encoded=encoded)


KINDS: Final[dict[str, Kind]] = {
    "langchain-redis": Kind(
        "RedisChatMessageHistory of langchain-community",
        forms.from_langchain,
        _lists(newest_first=True),
        "message_store:",
    ),
    "langchain-sql": Kind(
        "SQLChatMessageHistory, and PostgresChatMessageHistory of langchain-postgres",
        forms.from_langchain,
        _table("session_id", "message"),
        "message_store",
    ),
    "openai-agents-redis": Kind(
        "RedisSession of the OpenAI Agents SDK",
        forms.from_openai_agents,
        _lists(":messages"),
        "agents:session:",
    ),
    "openai-agents-sql": Kind(
        "SQLiteSession and SQLAlchemySession of the OpenAI Agents SDK",
        forms.from_openai_agents,
        _table("session_id", "message_data"),
        "agent_messages",
    ),
    "agent-framework-redis": Kind(
        "RedisHistoryProvider of Microsoft's agent-framework",
        agent_forms.from_agent_framework,
        _lists(encoded="~redis-session-"),
        "chat_messages:",
    ),
    "llama-index-redis": Kind(
        "RedisChatStore of LlamaIndex", forms.from_llama_index, _lists(), shared=True
    ),
    "llama-index-postgres": Kind(
        "PostgresChatStore of LlamaIndex",
        forms.from_llama_index,
        _table("key", "value", array=True),
        "chatstore",
    ),
    "llama-index-json": Kind(
        "the file of SimpleChatStore.persist",
        forms.from_llama_index,
        lambda url, _: PersistedFile(url),
    ),
}


CHECKPOINTERS: Final = ("langgraph-sqlite", "langgraph-postgres")
"""LangGraph's own checkpointers; their threads go both ways."""


ADK: Final = "adk-sql"
"""DatabaseSessionService and SqliteSessionService of Google's ADK."""

MEM0: Final = {"mem0-postgres": "mem0", "mem0-json": ""}
"""Where mem0 has its memories: the table, where nothing else is said, or a file of `Memory.get_all`."""


def kind_of(name: str) -> Kind:
    """By its name; `UsageError` with those that there are."""
    if name not in KINDS:
        raise UsageError(
            f"no source {name!r}; there are: {', '.join((*KINDS, *CHECKPOINTERS, *MEM0, ADK))}"
        )
    return KINDS[name]


def open_source(kind: Kind, url: str, place: str | None) -> Source:
    """A source, to be read from only."""
    return kind.open(url, kind.place if place is None else place)
