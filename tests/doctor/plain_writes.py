"""Acknowledged writes of clients as plain as can be, and how many of them are left."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import psycopg
import redis

from holdfast.doctor import Soundness

WRITES = 50
CUTS_MAX = 5
"""A sync of its own may come in the instant between the last answer and the cut: not so often."""
HOME = "/api/v2/tenants/default_tenant/databases/default_database/collections"


def patient(kind: str) -> dict[str, str]:
    """The log is written in the background now and then: not just in the moment before a fault."""
    return {"wal_writer_delay": "10s"} if kind == "postgres" else {}


def write_plainly(engine: Any) -> int:
    """Write, the last a moment ago; how many were acknowledged in all."""
    return int({"postgres": _rows, "chroma": _vectors}.get(engine.kind, _pushes)(engine))


def _pushes(engine: Any) -> int:
    return max(int(_call(engine, "RPUSH", "log", str(at))) for at in range(WRITES))


def _call(engine: Any, *words: str) -> Any:
    if engine.config != "cluster":
        return engine.call(*words)
    with redis.RedisCluster.from_url(engine.url) as client:
        return client.execute_command(*words)


def _rows(engine: Any) -> int:
    with psycopg.connect(engine.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS log (n int)")
        before = connection.execute("SELECT count(*) FROM log").fetchone()
        for at in range(WRITES):
            connection.execute("INSERT INTO log VALUES (%s)", (at,))
    return WRITES + (before[0] if before else 0)


def _vectors(engine: Any) -> int:
    """The index is persisted after ten: until then Chroma has all of it in its queue."""
    settings = {"hnsw": {"sync_threshold": 10, "batch_size": 5}}
    asked = {"name": "log", "configuration": settings, "get_or_create": True}
    made = chroma(engine, "", asked)
    for at in range(WRITES):
        record = {"ids": [str(at)], "embeddings": [[1.0, float(at)]], "documents": [str(at)]}
        chroma(engine, f"/{made['id']}/add", record)
    return WRITES


def count(engine: Any) -> int:
    """How many are there."""
    if engine.kind == "chroma":
        return _found(engine)
    if engine.kind != "postgres":
        return int(_call(engine, "LLEN", "log"))
    with psycopg.connect(engine.url) as connection:
        [(there,)] = connection.execute("SELECT to_regclass('log') IS NOT NULL").fetchall()
        if not there:
            return 0
        [(rows,)] = connection.execute("SELECT count(*) FROM log").fetchall()
    return int(rows)


def _found(engine: Any) -> int:
    """By what it is there for: the nearest of a vector. A collection may be there and broken."""
    try:
        [made] = chroma(engine, "?limit=1", None)
        asked = {"query_embeddings": [[1.0, 0.0]], "n_results": WRITES, "include": ["documents"]}
        return len(chroma(engine, f"/{made['id']}/query", asked)["ids"][0])
    except (urllib.error.HTTPError, ValueError):
        return 0


def chroma(engine: Any, path: str, body: object | None) -> Any:
    """One request to a Chroma server."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        engine.url + HOME + path, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read() or b"null")


def agrees(engine: Any, said: Soundness) -> None:
    """Cut the power: nothing is lost where that was said, and something is where it was not."""
    assert engine.has_power
    for _ in range(CUTS_MAX):
        acknowledged = write_plainly(engine)
        engine.power_cut()
        engine.start()
        lost = acknowledged - count(engine)
        if said is Soundness.SOUND:
            assert lost == 0, f"{said}, and {lost} of {acknowledged} were lost"
            return
        if lost:
            return
    raise AssertionError(f"{said}, and nothing was lost in {CUTS_MAX} power cuts")
