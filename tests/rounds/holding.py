"""An engine that answers no write for a while, and threads that are seen to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import apsw
import psycopg
import redis


def hold(url: str) -> Callable[[], Any]:
    """From now on no write is answered, until what is returned is called."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return _hold_sqlite(url)
    return _hold_redis(url) if scheme == "redis" else _hold_postgres(url)


def is_asleep(thread_id: int, progress: Callable[[], int]) -> bool:
    """Whether a thread waits in the kernel, and has made no progress for a while."""
    before = progress()
    for _ in range(3):
        if not thread_id or _state(thread_id) != "S" or progress() != before:
            return False
        time.sleep(0.0005)  # a thread that only waits for its turn to run has it by then
    return True


def _state(thread_id: int) -> str:
    stat = Path(f"/proc/self/task/{thread_id}/stat").read_text("utf-8")
    return stat.rpartition(")")[2].split()[0]


def _hold_sqlite(url: str) -> Callable[[], Any]:
    connection = apsw.Connection(urlsplit(url).path)
    connection.set_busy_timeout(5000)
    connection.execute("BEGIN IMMEDIATE")
    return connection.close


def _hold_redis(url: str) -> Callable[[], Any]:
    client = redis.Redis.from_url(url.partition("?")[0])
    client.execute_command("CLIENT", "PAUSE", "30000", "WRITE")

    def release() -> None:
        client.execute_command("CLIENT", "UNPAUSE")
        client.close()

    return release


def _hold_postgres(url: str) -> Callable[[], Any]:
    base, _, query = url.partition("?")
    connection = psycopg.connect(base)
    [schema] = parse_qs(query)["schema"]
    connection.execute(f"LOCK TABLE {schema}.messages IN SHARE MODE".encode())
    return connection.close
