"""A pytest plugin: wherever a framework's own tests open one of its stores, they get our class.

`PEER` names the framework: adk, agent-framework, llama-index or openai-agents.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Durability, Store


def opened(path: object = None) -> Store:
    """A store on this file, or on one of its own; both go with the object that is returned."""
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "memory.db" if path is None else Path(f"{path}.holdfast")
    store = holdfast.connect(f"sqlite:///{file}", require=Durability.PROCESS)
    weakref.finalize(store, folder.cleanup)
    return store


def replace(places: dict[str, str], ours: Any) -> None:
    """Put our class in the place of theirs, in every module that has it."""
    for module, names in places.items():
        with contextlib.suppress(ImportError):
            found = importlib.import_module(module)
            for name in names.split():
                setattr(found, name, ours)


def adk() -> None:
    """Its three services."""
    from holdfast.integrations.adk import HoldfastSessionService  # noqa: PLC0415 - only this peer

    class Service(HoldfastSessionService):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(opened())

        async def close(self) -> None:
            self._runner.store.close()

    at = "google.adk.sessions"
    replace(
        {
            at: "InMemorySessionService DatabaseSessionService",
            f"{at}.in_memory_session_service": "InMemorySessionService",
            f"{at}.database_session_service": "DatabaseSessionService",
            f"{at}.sqlite_session_service": "SqliteSessionService",
        },
        Service,
    )


def agent_framework() -> None:
    """Its two providers."""
    from holdfast.integrations.agent_framework import (  # noqa: PLC0415 - only this peer
        HoldfastHistoryProvider,
    )

    class Provider(HoldfastHistoryProvider):
        def __init__(self, source_id: Any = None, **settings: Any) -> None:
            named = source_id if isinstance(source_id, str) else "holdfast"
            super().__init__(opened(), source_id=named, **settings)

    replace({"agent_framework": "FileHistoryProvider InMemoryHistoryProvider"}, Provider)


def llama_index() -> None:
    """Its chat stores."""
    from holdfast.integrations.llama_index import (  # noqa: PLC0415 - only this peer
        HoldfastChatStore,
    )

    class Chats(HoldfastChatStore):
        def __init__(self, **_: Any) -> None:
            super().__init__(opened())

        @classmethod
        def from_uri(cls, **_: Any) -> Chats:
            return cls()

    at = "llama_index.core.storage.chat_store"
    replace(
        {
            at: "SimpleChatStore",
            f"{at}.simple_chat_store": "SimpleChatStore",
            "llama_index.core.memory.chat_memory_buffer": "SimpleChatStore",
            "llama_index.core.memory.chat_summary_memory_buffer": "SimpleChatStore",
            "llama_index.storage.chat_store.sqlite": "SQLiteChatStore",
            "llama_index.storage.chat_store.sqlite.base": "SQLiteChatStore",
        },
        Chats,
    )


def openai_agents() -> None:
    """Its session in SQLite."""
    from holdfast.integrations.openai_agents import (  # noqa: PLC0415 - only this peer
        HoldfastSession,
    )

    class Session(HoldfastSession):
        def __init__(
            self, session_id: str, db_path: object = ":memory:", *_: Any, **settings: Any
        ) -> None:
            self._opened = opened(None if db_path == ":memory:" else db_path)
            super().__init__(session_id, self._opened, turns="all", **settings)

        def close(self) -> None:
            self._opened.close()

    importlib.import_module(
        "agents.extensions.memory.encrypt_session"
    )  # it tells theirs from others
    replace(
        dict.fromkeys(("agents", "agents.memory", "agents.memory.sqlite_session"), "SQLiteSession"),
        Session,
    )


{
    "adk": adk,
    "agent-framework": agent_framework,
    "llama-index": llama_index,
    "openai-agents": openai_agents,
}[os.environ["PEER"]]()
