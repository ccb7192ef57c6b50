"""How long a power cut and the way back take, by the block mechanism, under load.

From the call of `power_cut()` to the first answer of the engine on what survived; for SQLite to
the first read of a new connection. The cut includes the count of what it dropped.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import redis

from bench.figure import Figure, seconds
from holdfast.verify.engines import start_engine
from holdfast.verify.power.block import BlockSupply

CUTS = 9
BOUNDS_MS = {"redis": 150, "sqlite": 150, "postgres": 700}


def run() -> Iterator[Figure]:
    """Cut and restart of each engine; and the supply itself, made with its positive control."""
    for kind, bound_ms in BOUNDS_MS.items():
        taken = _WAYS[kind]()
        yield Figure(
            f"{kind}: power cut and restart under load",
            statistics.median(taken) * 1000,
            at_most=bound_ms,
            unit="ms",
            detail=f"{CUTS} cuts, {min(taken) * 1000:.0f} to {max(taken) * 1000:.0f} ms",
        )
    opened = [seconds(lambda: BlockSupply().close()) for _ in range(CUTS)]
    yield Figure("a disk made, controlled and closed", statistics.median(opened) * 1000, unit="ms")


@contextlib.contextmanager
def _load(write: Callable[[], object]) -> Iterator[None]:
    """Somebody writes all the time, until the engine is gone."""
    stop, begun = threading.Event(), threading.Event()

    def work() -> None:
        with contextlib.suppress(Exception):  # the engine goes away under it
            while not stop.is_set():
                write()
                begun.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begun.wait(10)
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def _server(kind: str, connect: Callable[[str], Callable[[], object]]) -> list[float]:
    taken = []
    with start_engine(kind, power="block") as engine:
        cut: Any = engine
        for _ in range(CUTS):
            with _load(connect(engine.url)):
                taken.append(seconds(lambda: (cut.power_cut(), engine.start())))
    return taken


def _redis(url: str) -> Callable[[], object]:
    client = redis.Redis.from_url(url)
    return lambda: client.rpush("log", "x" * 200)


def _postgres(url: str) -> Callable[[], object]:
    client = psycopg.connect(url, autocommit=True)
    client.execute("CREATE TABLE IF NOT EXISTS log (body text)")
    return lambda: client.execute("INSERT INTO log VALUES (%s)", ("x" * 200,))


def _sqlite() -> list[float]:
    taken = []
    with start_engine("sqlite", power="block") as engine:
        cut: Any = engine
        for _ in range(CUTS):
            with _load(_sqlite_writer(str(cut.path))):
                taken.append(seconds(lambda: (cut.power_cut(), _count(str(cut.path)))))
    return taken


def _sqlite_writer(path: str) -> Callable[[], object]:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL").fetchall()
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS log (body TEXT)")
    return lambda: db.execute("INSERT INTO log VALUES (?)", ("x" * 200,))


def _count(path: str) -> int:
    db = sqlite3.connect(path)
    found: int = db.execute("SELECT count(*) FROM log").fetchone()[0]
    db.close()
    return found


_WAYS: dict[str, Callable[[], list[float]]] = {
    "redis": lambda: _server("redis", _redis),
    "sqlite": _sqlite,
    "postgres": lambda: _server("postgres", _postgres),
}
