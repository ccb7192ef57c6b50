"""The embedded store beside raw apsw with the same settings on the same disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw

import holdfast
from bench.figure import Figure, seconds, side_by_side
from bench.log import BODY, PAGE, RECORD, Appenders, beside_raw, newest_pages
from holdfast import Store

WRITES = 800
ROUNDS = 9
WRITERS = 16
LONG, SHORT = 1_000_000, 1_000


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
        """A session of so many records."""
        with self.connection:
            self.connection.executemany(
                "INSERT INTO pages (session, body) VALUES (?, ?)",
                ((session, RECORD) for _ in range(count)),
            )

    def newest(self, session: str) -> list[object]:
        """The newest page, decoded."""
        rows = self.plain.execute(
            "SELECT body FROM pages WHERE session = ? ORDER BY id DESC LIMIT ?", (session, PAGE)
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]


def _appends(raw: RawLog, store: Store, async_url: str) -> Iterator[Figure]:
    each = WRITES // WRITERS
    with closing(Appenders(WRITERS, turns=each, store=store, async_url=async_url)) as many:
        ways: dict[str, Callable[[], object]] = {
            "raw": lambda: raw.append(WRITES),
            "ours": lambda: [store.append("s", BODY) for _ in range(WRITES)],
            "threads": many.threads,
            "tasks": many.tasks,
        }
        taken = side_by_side(ways, rounds=ROUNDS)
    rate = {name: WRITES / time_s for name, time_s in taken.items()}
    appenders = f"{WRITERS} concurrent appenders"
    yield from beside_raw(rate, "INSERT + COMMIT", at_least=0.8, many=appenders, many_at_least=3.0)


def _reads(raw: RawLog, store: Store) -> Iterator[Figure]:
    for session, count in (("short", SHORT), ("long", LONG)):
        raw.fill(session, count)
    newest = partial(raw.newest, "short")
    yield from newest_pages(store, newest, "SELECT", at_most=2.5, long=LONG, short=SHORT)


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
