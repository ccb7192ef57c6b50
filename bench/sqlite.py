"""The embedded store beside raw apsw with the same settings on the same disk."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

import holdfast
from bench.figure import Figure, seconds, side_by_side
from holdfast import Message, Store

WRITES = 800
ROUNDS = 9
WRITERS = 16
LONG, SHORT = 1_000_000, 1_000
PAGE = 50
BODY = Message("user", "x" * 200)


def run() -> Iterator[Figure]:
    """Every figure of the embedded store."""
    # Not the system's temporary directory: that may be memory, where a sync costs nothing.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        here = Path(folder)
        raw = RawLog(here / "raw.db")
        with holdfast.connect(f"sqlite:///{here}/ours.db") as store:
            yield from _appends(raw, store, f"sqlite:///{here}/async.db")
        with holdfast.connect(f"sqlite:///{here}/reads.db") as store:
            yield from _reads(raw, store)
    yield _import_time()


class RawLog:
    """What a careful person writes by hand: apsw, WAL, FULL, one INSERT and one COMMIT."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
        self.connection.execute(
            "CREATE TABLE log (id INTEGER PRIMARY KEY, session TEXT, body BLOB);"
            "CREATE TABLE pages (id INTEGER PRIMARY KEY, session TEXT, body BLOB);"
            "CREATE INDEX by_session ON pages (session, id)"
        )
        self.plain = apsw.Connection(str(path))

    def append(self, count: int) -> None:
        """So many inserts, each with a commit of its own."""
        execute = self.connection.execute
        for _ in range(count):
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO log (session, body) VALUES (?, ?)", ("s", b"x" * 200))
            execute("COMMIT")

    def fill(self, session: str, count: int) -> None:
        """The same JSON that our log holds."""
        body = json.dumps({"id": BODY.id, "role": "user", "content": BODY.content, "at": None})
        with self.connection:
            self.connection.executemany(
                "INSERT INTO pages (session, body) VALUES (?, ?)",
                ((session, body.encode()) for _ in range(count)),
            )

    def newest(self, session: str) -> list[object]:
        """The newest page, decoded."""
        rows = self.plain.execute(
            "SELECT body FROM pages WHERE session = ? ORDER BY id DESC LIMIT ?", (session, PAGE)
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]


def _appends(raw: RawLog, store: Store, async_url: str) -> Iterator[Figure]:
    tasks = Tasks(async_url)
    ways: dict[str, Callable[[], object]] = {
        "raw": lambda: raw.append(WRITES),
        "ours": lambda: [store.append("s", BODY) for _ in range(WRITES)],
        "threads": lambda: _in_threads(store),
        "tasks": tasks.write,
    }
    taken = side_by_side(ways, rounds=ROUNDS)
    tasks.close()
    rate = {name: WRITES / time_s for name, time_s in taken.items()}
    detail = f"raw {rate['raw']:,.0f}/s, ours {{:,.0f}}/s, 200 bytes, synced"
    yield Figure(
        "one writer, beside raw INSERT + COMMIT",
        rate["ours"] / rate["raw"],
        at_least=0.8,
        detail=detail.format(rate["ours"]),
    )
    for name in ("threads", "tasks"):
        yield Figure(
            f"{WRITERS} concurrent appenders ({name}), beside one raw writer",
            rate[name] / rate["raw"],
            at_least=3.0,
            detail=detail.format(rate[name]),
        )


def _in_threads(store: Store) -> None:
    def write() -> None:
        for _ in range(WRITES // WRITERS):
            store.append("s", BODY)

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Tasks:
    """Concurrent tasks on one event loop and one store."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._store = self._runner.run(holdfast.connect_async(url))

    def write(self) -> None:
        """The same number of appends as the others."""
        self._runner.run(self._write())

    async def _write(self) -> None:
        async def turns() -> None:
            for _ in range(WRITES // WRITERS):
                await self._store.append("s", BODY)

        await asyncio.gather(*(turns() for _ in range(WRITERS)))

    def close(self) -> None:
        """Close the store, then the loop."""
        self._runner.run(self._store.close())
        self._runner.close()


def _reads(raw: RawLog, store: Store) -> Iterator[Figure]:
    for session, count in (("short", SHORT), ("long", LONG)):
        raw.fill(session, count)
        for _ in range(0, count, 1000):
            store.append(session, [BODY] * 1000)
    ways = {
        "raw": lambda: [raw.newest("short") for _ in range(20)],
        "short": lambda: [store.history("short", limit=PAGE) for _ in range(20)],
        "long": lambda: [store.history("long", limit=PAGE) for _ in range(20)],
    }
    taken = side_by_side(ways, rounds=25)
    yield Figure(
        f"history(limit={PAGE}), beside raw SELECT + json.loads",
        taken["short"] / taken["raw"],
        at_most=2.5,
        detail=f"raw {taken['raw'] / 20 * 1e6:.0f} us, ours {taken['short'] / 20 * 1e6:.0f} us",
    )
    yield Figure(
        f"history(limit={PAGE}) of {LONG:,} messages, beside {SHORT:,}",
        taken["long"] / taken["short"],
        at_most=1.3,
        detail=f"{taken['long'] / 20 * 1e6:.0f} us beside {taken['short'] / 20 * 1e6:.0f} us",
    )


def _import_time() -> Figure:
    def python(code: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    # The least of several: whatever else the machine does only adds to it.
    more_ms = 1000 * (
        min(python("import holdfast") for _ in range(15)) - min(python("pass") for _ in range(15))
    )
    return Figure(
        "import holdfast, more than bare Python",
        more_ms,
        at_most=60,
        unit="ms",
        detail=f"Python {sys.version.split()[0]}, {os.cpu_count()} cores",
    )
