"""N2: coroutines that overtake one another (docs/incidents). The other causes: tests/twins/test_postgres.py."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

import holdfast
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts

CLIENTS = 8
EACH = 15
ROOT = Path(__file__).parents[2]


class Turns:
    """A row a message with the time at which its request came in, by one and the same clock."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def prepare(self) -> None:
        await self._ask("CREATE TABLE turns (content text, created_at timestamptz)")

    async def append(self, content: str, connection_is_free: asyncio.Event | None = None) -> None:
        at = datetime.now(UTC)
        if connection_is_free:
            await connection_is_free.wait()  # a pool is empty for a moment
        await self._ask("INSERT INTO turns VALUES (%s, %s)", content, at)

    async def after(self, last: datetime) -> list[tuple[str, datetime]]:
        rows = await self._ask(
            "SELECT * FROM turns WHERE created_at > %s ORDER BY created_at", last
        )
        return [(content, at) for content, at in rows]

    async def _ask(self, statement: str, *values: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as db:
            done = await db.execute(statement.encode(), values)
            return await done.fetchall() if done.description else []


def test_who_follows_a_conversation_by_time_never_sees_the_request_that_was_overtaken(
    postgres_engine: PostgresEngine,
):
    async def night() -> None:
        turns = Turns(postgres_engine.url)
        await turns.prepare()
        free = asyncio.Event()
        slow = asyncio.create_task(turns.append("I cannot eat peanuts", free))
        await asyncio.sleep(0)  # it has come in, and waits
        await turns.append("What shall I cook?")
        followed = await turns.after(datetime.min.replace(tzinfo=UTC))
        free.set()
        await slow  # acknowledged
        followed += await turns.after(followed[-1][1])
        assert [content for content, _ in followed] == ["What shall I cook?"]
        assert len(await turns.after(datetime.min.replace(tzinfo=UTC))) == 2, "it is there"

    asyncio.run(night())


def test_who_follows_ours_by_number_sees_every_message_once_while_many_write(
    postgres_engine: PostgresEngine,
):
    async def night() -> None:
        async with await holdfast.connect_async(postgres_engine.url) as store:

            async def write(client: int) -> None:
                for number in range(EACH):
                    await store.append("s", say(f"{client}.{number}"))

            writers = [asyncio.create_task(write(client)) for client in range(CLIENTS)]
            followed: list[str] = []
            numbers: list[int | None] = []
            pages = 0
            while len(followed) < CLIENTS * EACH:
                ended = all(task.done() for task in writers)
                page = await store.history("s", after=len(followed), limit=20)
                followed += texts(page)
                numbers += [message.seq for message in page]
                pages += 1
                assert page or not ended, "one was never seen"
            await asyncio.gather(*writers)
        assert numbers == list(range(1, CLIENTS * EACH + 1))
        for client in range(CLIENTS):
            own = [text for text in followed if text.startswith(f"{client}.")]
            assert own == [f"{client}.{number}" for number in range(EACH)]
        assert pages > 1

    asyncio.run(night())


def test_the_page_tells_every_cause_and_names_tests_that_there_are():
    page = (ROOT / "docs" / "incidents" / "n2-application-clocks.md").read_text("utf-8")
    assert all(f"## {number}:" in page for number in ("One", "Two", "Three", "Four"))
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) >= 3
    assert all((ROOT / name).exists() for name in named)
