"""Sessions of ADK and histories of agent-framework, as their own stores wrote them, in ours."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from base64 import b32encode
from contextlib import closing
from pathlib import Path
from typing import Any

import agent_framework
import psycopg
import pytest
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

import holdfast
from holdfast import UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.adk import HoldfastSessionService
from holdfast.integrations.agent_framework import HoldfastHistoryProvider
from holdfast.integrations.migration import migrate
from holdfast.verify.engines.drivers import redis_client
from tests.integrations.test_adk import function, said

USERS = ("u/1%", "ü")


@pytest.fixture(params=["DatabaseSessionService on sqlite", "on postgres", "SqliteSessionService"])
def theirs(request: pytest.FixtureRequest, disk_path: Path) -> tuple[str, Any]:
    """A URL, and what opens ADK's own service there."""
    if request.param == "on postgres":
        url = request.getfixturevalue("postgres_engine").url
        address = url.replace("postgresql://", "postgresql+asyncpg://")
        return url, lambda: DatabaseSessionService(address)
    path = disk_path / "adk.db"
    if request.param == "SqliteSessionService":
        return f"sqlite:///{path}", lambda: SqliteSessionService(str(path))
    return f"sqlite:///{path}", lambda: DatabaseSessionService(f"sqlite+aiosqlite:///{path}")


async def talk(service: Any, *, turns: int, first: int = 0) -> None:
    for user in USERS:
        about: Any = {"app_name": "shop", "user_id": user, "session_id": "s"}
        if not first:
            state = {"begun": True, "app:open": 1, "user:name": user}
            await service.create_session(**about, state=state)
        session = await service.get_session(**about)
        for turn in range(first, turns):
            at = 1000.0 + turn
            delta = {"turn": turn, "app:open": f"{turn} {user}", "user:seen": turn, "temp:no": 1}
            await service.append_event(session, function(f"c{turn}", timestamp=at + 0.25))
            await service.append_event(session, function(f"c{turn}", "it", timestamp=at + 0.5))
            await service.append_event(session, said(f"{turn} ü", delta, at=at + 0.75))


def use(opened: Any, work: Any, **more: Any) -> Any:
    """Do something with a service of ADK, and close it."""

    async def main() -> Any:
        service = opened()
        try:
            return await work(service, **more)
        finally:
            if hasattr(service, "close"):
                await service.close()

    return asyncio.run(main())


async def seen(service: Any) -> list[Any]:
    found = []
    for user in USERS:
        about: Any = {"app_name": "shop", "user_id": user, "session_id": "s"}
        session = await service.get_session(**about)
        events = [one.model_dump(mode="json", exclude_none=True) for one in session.events]
        found.append((session.state, events))
    return found


def test_sessions_of_adk_come_over_with_their_state_and_go_on(theirs: tuple[str, Any], url: str):
    where, opened = theirs

    async def ours() -> list[Any]:
        async with await holdfast.connect_async(url) as store:
            return await seen(HoldfastSessionService(store))

    use(opened, talk, turns=2)
    before = use(opened, seen)
    moved = migrate(where, url, kind="adk-sql")
    assert (moved.sessions, moved.messages, moved.verified) == (2, 12, 12)
    assert moved.complete
    assert asyncio.run(ours()) == before  # the look settles what the newest events say
    assert asyncio.run(ours()) == before
    use(opened, talk, turns=4, first=2)
    before = use(opened, seen)
    again = migrate(where, url, kind="adk-sql")
    assert (again.messages, again.present, again.verified) == (12, 12, 24)
    assert asyncio.run(ours()) == before
    assert migrate(where, url, kind="adk-sql").messages == 0

    async def goes_on() -> None:
        async with await holdfast.connect_async(url) as store:
            await talk(HoldfastSessionService(store), turns=5, first=4)
            await HoldfastSessionService(store).delete_session(
                app_name="shop", user_id="ü", session_id="s"
            )

    asyncio.run(goes_on())
    after = migrate(where, url, kind="adk-sql")
    assert (after.messages, len(after.gone), after.verified) == (0, 1, 12)
    with pytest.raises(UsageError, match="no events of ADK"):
        migrate(url, f"{url}2", kind="adk-sql")


DAMAGED = (
    "UPDATE events SET event_data = '{\"cut' WHERE user_id = 'ü'",
    """UPDATE events SET event_data = '{"content": {"parts": [5]}}' WHERE user_id = 'ü'""",
    """UPDATE events SET event_data = '{"x": NaN}' WHERE user_id = 'ü'""",
    f"""UPDATE events SET event_data = '{{"x": {"[" * 5000 + "]" * 5000}}}' WHERE user_id = 'ü'""",
    f"""UPDATE events SET event_data = '{{"x": "{"x" * 17_000_000}"}}' WHERE user_id = 'ü'""",
    """UPDATE sessions SET state = '{"x": NaN}' WHERE user_id = 'ü'""",
    """UPDATE user_states SET state = '{"x": NaN}' WHERE user_id = 'ü'""",
    "UPDATE user_states SET state = '[]' WHERE user_id = 'ü'",
    f"UPDATE sessions SET id = '{'s' * 2000}' WHERE user_id = 'ü'",
)


@pytest.mark.parametrize("damage", DAMAGED, ids=range(len(DAMAGED)))
def test_what_cannot_come_over_from_adk_is_named_and_stops_nothing_else(
    disk_path: Path, url: str, damage: str
):
    where = f"sqlite:///{disk_path}/adk.db"
    use(lambda: SqliteSessionService(str(disk_path / "adk.db")), talk, turns=1)
    with closing(sqlite3.connect(disk_path / "adk.db")) as db, db:
        db.execute(damage)
    for _ in range(2):
        moved = migrate(where, url, kind="adk-sql")
        assert [one.session.split("/")[3][:1] for one in moved.left_out] == ["ü"]
        assert moved.verified == (6 if "user_states" in damage else 3)
        assert not moved.differences


@pytest.mark.parametrize("column", ["events SET event_data", "sessions SET state"])
def test_a_deep_row_of_adk_on_postgres_is_named_and_stops_nothing_else(
    postgres_engine: Any, url: str, column: str
):
    where = postgres_engine.url
    address = where.replace("postgresql://", "postgresql+asyncpg://")
    use(lambda: DatabaseSessionService(address), talk, turns=1)
    deep = '{"x": ' + "[" * 3000 + "]" * 3000 + "}"
    with psycopg.connect(where) as connection:
        connection.execute(f"UPDATE {column} = %s WHERE user_id = 'ü'".encode(), (deep,))
    moved = migrate(where, url, kind="adk-sql")
    assert [one.session.split("/")[3] for one in moved.left_out] == ["ü"]
    assert (moved.verified, moved.differences) == (3, [])


def test_a_move_from_adk_that_is_cut_short_is_finished_by_the_next(
    disk_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
):
    """Cut after a session's events and before the note that their state is carried over already."""
    where = f"sqlite:///{disk_path}/adk.db"

    def opened() -> Any:
        return SqliteSessionService(str(disk_path / "adk.db"))

    use(opened, talk, turns=1)
    before = use(opened, seen)
    add = framework_operations.add

    def cut(session: str, *args: Any, **more: Any) -> Any:
        if not session.startswith("adk/session/"):
            raise KeyboardInterrupt
        return add(session, *args, **more)

    monkeypatch.setattr(framework_operations, "add", cut)
    with pytest.raises(KeyboardInterrupt):
        migrate(where, url, kind="adk-sql")
    monkeypatch.setattr(framework_operations, "add", add)
    assert migrate(where, url, kind="adk-sql").complete

    async def ours() -> list[Any]:
        async with await holdfast.connect_async(url) as store:
            return await seen(HoldfastSessionService(store))

    assert asyncio.run(ours()) == before
    assert asyncio.run(ours()) == before


@pytest.mark.parametrize("prefix", ["chat_messages:", "chat_messages|v2|~none|shop|~none|redis|"])
def test_histories_of_agent_framework_come_over(redis_engine: Any, url: str, prefix: str):
    """Laid out as agent-framework-redis 1.0.0b261022 does: a list a session, an id in base32 where it must be."""
    said_there = [
        agent_framework.Message("user", ["Hello ü"]),
        agent_framework.Message(
            "assistant",
            [agent_framework.Content.from_function_call("c1", "look", arguments={"at": 1})],
            message_id="m1",
        ),
        agent_framework.Message(
            "tool", [agent_framework.Content.from_function_result("c1", result="seen")]
        ),
    ]
    odd = "a/b ü" if "|" in prefix else "a-b"
    written = odd
    if "|" in prefix:
        written = "~redis-session-" + b32encode(odd.encode()).decode().rstrip("=").lower()
    with redis_client(redis_engine.url, decode=False) as client:
        for name in ("user-42", written):
            for message in said_there:
                client.rpush(f"{prefix}{name}", json.dumps(message.to_dict()))
    for count in (6, 0):
        moved = migrate(redis_engine.url, url, kind="agent-framework-redis", place=prefix)
        assert (moved.messages, moved.verified, moved.complete) == (count, 6, True)

    async def read(name: str) -> list[Any]:
        async with await holdfast.connect_async(url) as store:
            found = await HoldfastHistoryProvider(store).get_messages(name)
            return [one.to_dict() for one in found]

    for name in ("user-42", odd):
        assert asyncio.run(read(name)) == [one.to_dict() for one in said_there]
