"""The sessions of the OpenAI Agents SDK: `SQLiteSession` and `RedisSession`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.contract import Store
from holdfast.verify.adapters.frameworks import CLAIMS, holdfast_target, imported
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

CODE: Final = ("agents.memory", "agents.extensions.memory")
"""Where a crash at a line is tried: the framework's own store."""


class Sessions:
    """One session object for each conversation, as an application keeps them."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._made: dict[str, Any] = {}

    async def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        """One call for the whole turn: as atomic as the framework makes it."""
        await self._of(session).add_items(messages)

    async def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """The newest `limit` items."""
        items: list[dict[str, Any]] = await self._of(session).get_items(limit=limit)
        return items

    async def forget(self, session: str) -> None:
        """Clear it."""
        await self._of(session).clear_session()

    async def close(self) -> None:
        """Close what can be closed; only some of them must be awaited."""
        for session in self._made.values():
            answer = session.close()
            if answer is not None:
                await answer

    def _of(self, session: str) -> Any:
        if session not in self._made:
            self._made[session] = self._make(session)
        return self._made[session]


class OurSessions(Sessions):
    """Our store as sessions of the SDK: the same calls, and a key where one is given."""

    def __init__(self, store: Store) -> None:
        made = imported("holdfast.integrations.openai_agents", "openai-agents").HoldfastSession
        super().__init__(lambda session: made(session, store, turns="all"))
        self._store = store

    async def append(
        self, session: str, messages: list[dict[str, Any]], key: str | None = None
    ) -> None:
        """One call for the whole turn."""
        await self._of(session).add_items(messages, key=key)

    async def close(self) -> None:
        """Close the store."""
        self._store.close()


def holdfast(engine: Engine) -> Target:
    """Our store, as `HoldfastSession`."""
    return holdfast_target(engine, OurSessions, f"holdfast on {engine.kind}, through openai-agents")


def sqlite(engine: Engine) -> Target:
    """`SQLiteSession` in a file."""
    assert engine.data_dir is not None  # noqa: S101 - SQLite is a file
    path = Path(engine.data_dir) / "agents.db"

    def open_store() -> Sessions:
        made = imported("agents", "openai-agents").SQLiteSession
        return Sessions(lambda session: made(session, path))

    return Target(
        open=open_store, engine=engine, claims=CLAIMS, code=CODE, name="openai-agents SQLiteSession"
    )


def redis(engine: Engine) -> Target:
    """`RedisSession`."""

    def open_store() -> Sessions:
        module = imported("agents.extensions.memory.redis_session", "openai-agents")
        return Sessions(lambda session: module.RedisSession.from_url(session, url=engine.url))

    return Target(
        open=open_store, engine=engine, claims=CLAIMS, code=CODE, name="openai-agents RedisSession"
    )
