"""The store on PostgreSQL beside raw psycopg and beside other libraries' stores, on one server.

The server keeps `fsync` and `synchronous_commit` on for all of them, on a disk. The others are
installed, at the versions named here, in an environment of their own in
`.cache/bench-postgres`, and each runs in a process of its own, since ours does, too.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

import holdfast
from bench.figure import Figure, side_by_side
from bench.log import BODY, PAGE, READS, RECORD, Appenders, beside_raw, newest_pages, one, own
from holdfast import Store
from holdfast.verify.engines import start_engine

WRITES = 160
MANY = 640
ROUNDS = 15
WRITERS = 32
LONG, SHORT = 200_000, 1_000
HOME = Path(".cache/bench-postgres")
PACKAGES = (
    "openai-agents[sqlalchemy]==0.24.0",
    "asyncpg==0.30.0",
    "langchain-postgres==0.0.19",
    "llama-index-storage-chat-store-postgres==0.5.0",
)
RIVALS = {
    "agents": "openai-agents SQLAlchemySession (asyncpg)",
    "langchain": "langchain-postgres PostgresChatMessageHistory",
    "llama": "LlamaIndex PostgresChatStore",
}

RIVAL = """
import asyncio, sys, time, uuid
kind, at = sys.argv[1], sys.argv[2].partition("://")[2]
text, session = "x" * 200, str(uuid.uuid4())
loop = asyncio.new_event_loop()
if kind == "agents":
    from agents.extensions.memory import SQLAlchemySession
    store = SQLAlchemySession.from_url(session, url=f"postgresql+asyncpg://{at}", create_tables=True)
    append = lambda: loop.run_until_complete(store.add_items([{"role": "user", "content": text}]))
    read = lambda: loop.run_until_complete(store.get_items(50))
elif kind == "langchain":
    import psycopg
    from langchain_core.messages import HumanMessage
    from langchain_postgres import PostgresChatMessageHistory
    connection = psycopg.connect(f"postgresql://{at}")
    PostgresChatMessageHistory.create_tables(connection, "langchain")
    store = PostgresChatMessageHistory("langchain", session, sync_connection=connection)
    append = lambda: store.add_messages([HumanMessage(text)])
    read = lambda: store.get_messages()[-50:]
else:
    from llama_index.core.llms import ChatMessage
    from llama_index.storage.chat_store.postgres import PostgresChatStore
    store = PostgresChatStore.from_uri(f"postgresql://{at}")
    append = lambda: store.add_message(session, ChatMessage(role="user", content=text))
    read = lambda: store.get_messages(session)[-50:]
append()
print("ready", flush=True)
for line in sys.stdin:
    what, count = line.split()
    work = {"append": append, "read": read}[what]
    for _ in range(int(count)):
        work()
    print("done", flush=True)
"""


def run() -> Iterator[Figure]:
    """Every figure of the store on PostgreSQL."""
    with contextlib.ExitStack() as after:
        engine: Any = after.enter_context(start_engine("postgres", storage="disk"))
        raw = after.enter_context(contextlib.closing(RawLog(engine.url)))
        store = after.enter_context(holdfast.connect(engine.url))
        yield from _appends(raw, store, engine.url)
        yield from _reads(raw, store)
        yield from _rivals(engine, store, after)


class RawLog:
    """What a careful person writes by hand: psycopg, one INSERT, one commit; prepared by itself."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url)
        self.plain = psycopg.connect(url, autocommit=True)
        self.plain.execute("CREATE TABLE log (id bigserial PRIMARY KEY, session text, body bytea)")
        self.plain.execute(
            "CREATE TABLE pages (id bigserial PRIMARY KEY, session text, body bytea)"
        )
        self.plain.execute("CREATE INDEX by_session ON pages (session, id)")

    def append(self, count: int) -> None:
        """So many inserts, each with a commit of its own."""
        for _ in range(count):
            self.connection.execute(
                "INSERT INTO log (session, body) VALUES (%s, %s)", ("s", b"x" * 200)
            )
            self.connection.commit()

    def fill(self, session: str, count: int) -> None:
        """A session of so many records."""
        self.plain.execute(
            "INSERT INTO pages (session, body) SELECT %s, %s FROM generate_series(1, %s)",
            (session, RECORD, count),
        )
        self.plain.execute("ANALYZE pages")

    def newest(self, session: str) -> list[object]:
        """The newest page, decoded."""
        rows = self.plain.execute(
            "SELECT body FROM pages WHERE session = %s ORDER BY id DESC LIMIT %s", (session, PAGE)
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def close(self) -> None:
        """Close both connections."""
        self.connection.close()
        self.plain.close()


def _appends(raw: RawLog, store: Store, url: str) -> Iterator[Figure]:
    turns = MANY // WRITERS
    with contextlib.closing(Appenders(WRITERS, turns=turns, store=store, async_url=url)) as many:
        ways: dict[str, Callable[[], object]] = {
            "raw": lambda: raw.append(WRITES),
            "ours": lambda: [store.append("s", BODY) for _ in range(WRITES)],
            "threads, one session": lambda: many.threads(one),
            "threads, own sessions": lambda: many.threads(own),
            "tasks, one session": lambda: many.tasks(one),
            "tasks, own sessions": lambda: many.tasks(own),
        }
        taken = side_by_side(ways, rounds=ROUNDS)
    alone = ("raw", "ours")
    rate = {name: (WRITES if name in alone else MANY) / taken[name] for name in ways}
    appenders = f"{WRITERS} appenders"
    yield from beside_raw(rate, "INSERT + commit", at_least=0.8, many=appenders, many_at_least=2.0)


def _reads(raw: RawLog, store: Store) -> Iterator[Figure]:
    for session, count in (("short", SHORT), ("long", LONG)):
        raw.fill(session, count)
    newest = partial(raw.newest, "short")
    yield from newest_pages(store, newest, "SELECT", at_most=2.0, long=LONG, short=SHORT)


class Rival:
    """Another library's store, in a process of its own."""

    def __init__(self, kind: str, url: str) -> None:
        self._process = subprocess.Popen(
            [HOME / "bin" / "python", "-c", RIVAL, kind, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def work(self, what: str, count: int) -> None:
        """So many appends, or reads of the newest page."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"a rival ended early: {self._process.stderr.read()[-2000:]}")


def _install() -> str | None:
    """Make the environment of the others; why there is none, if it cannot be made."""
    done = HOME / "done.txt"
    wanted = "\n".join(PACKAGES)
    if done.exists() and done.read_text() == wanted:
        return None
    subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
    pip = [str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES]
    made = subprocess.run(pip, check=False, capture_output=True, text=True)
    if made.returncode:
        return str(made.stderr.strip().splitlines()[-1])
    done.write_text(wanted)
    return None


def _rivals(engine: Any, store: Store, after: contextlib.ExitStack) -> Iterator[Figure]:
    why_not = _install()
    if why_not is not None:
        yield Figure("other libraries could not be installed", 0.0, unit="", detail=why_not)
        return
    for kind, name in RIVALS.items():
        rival = after.enter_context(contextlib.closing(Rival(kind, engine.url)))
        yield from _beside(rival, name, store, f"beside {kind}")
        rival.close()


def _beside(rival: Rival, name: str, store: Store, session: str) -> Iterator[Figure]:
    """Both write the same conversation, batch by batch; then both read its newest page."""
    ours: dict[str, Callable[[], object]] = {
        "append": lambda: [store.append(session, BODY) for _ in range(40)],
        "read": lambda: [store.history(session, limit=PAGE) for _ in range(READS)],
    }
    for what, count in (("append", 40), ("read", READS)):
        ways: dict[str, Callable[[], object]] = {
            "theirs": lambda what=what, count=count: rival.work(what, count),  # type: ignore[misc]
            "ours": ours[what],
        }
        taken = side_by_side(ways, rounds=ROUNDS)
        us = {way: time_s / count * 1e6 for way, time_s in taken.items()}
        what_is = "append" if what == "append" else f"newest {PAGE} of {ROUNDS * 40}"
        yield Figure(
            f"{what_is}: {name} / ours",
            us["theirs"] / us["ours"],
            at_least=1.0,
            detail=f"theirs {us['theirs']:,.0f} us, ours {us['ours']:,.0f} us",
        )
