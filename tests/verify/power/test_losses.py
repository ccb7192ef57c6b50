"""What each configuration loses to a power cut, in kind: nothing, always something, everything.

The writers here are as plain as can be, and stop before the cut: whatever is lost had been
acknowledged. Long campaigns under load are in tests/torture.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import UsageError
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines import PowerCuttable
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.engines.sqlite import SqliteEngine
from tests.waiting import wait_until

CUTS = 2
WRITES = 400

pytestmark = pytest.mark.usefixtures("can_cut")


def lost_by_redis(engine: RedisEngine, *, during: Callable[[], bool] = lambda: True) -> list[int]:
    """How many pushes that were answered are gone, cut by cut."""
    lost = []
    for number in range(CUTS):
        client = redis.Redis.from_url(engine.url, retry=Retry(NoBackoff(), 0))
        before = client.llen("log")
        wait_until(during)
        for at in range(WRITES):
            client.rpush("log", f"{number}.{at}")
        assert during(), "the moment was over too early: nothing was tested"
        client.close()
        engine.power_cut()
        engine.start()
        with redis.Redis.from_url(engine.url) as after:
            lost.append(before + WRITES - after.llen("log"))
    return lost


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_redis_that_syncs_before_it_answers_loses_nothing(engine_factory: EngineFactory, kind: str):
    engine = engine_factory(kind, config="aof-always", power="block")
    assert lost_by_redis(engine) == [0] * CUTS
    assert isinstance(engine, PowerCuttable)


def test_redis_that_syncs_every_second_loses_at_every_cut(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-everysec", power="block")
    lost = lost_by_redis(engine)
    # The sync of that second may come in the instant between the last answer and the cut.
    assert any(lost)
    assert all(0 <= each <= WRITES for each in lost)


def test_redis_with_snapshots_only_loses_everything_since_the_last(
    redis_engine_factory: EngineFactory,
):
    engine = redis_engine_factory(config="rdb-only", power="block")
    engine.call("SET", "before", "1")
    engine.call("SAVE")
    assert lost_by_redis(engine) == [WRITES] * CUTS
    assert engine.call("GET", "before") == "1"


@pytest.mark.parametrize(
    ("config", "field"),
    [("aof-rewriting", "aof_rewrite_in_progress"), ("aof-saving", "rdb_bgsave_in_progress")],
)
def test_redis_always_loses_during_a_rewrite_or_a_snapshot_if_told_not_to_sync_then(
    redis_engine_factory: EngineFactory, config: str, field: str
):
    engine = redis_engine_factory(config=config, power="block")
    with redis.Redis.from_url(engine.url) as client, client.pipeline(transaction=False) as pipe:
        for at in range(400):  # each takes five milliseconds to be written
            pipe.set(f"k{at}", "v" * 100)
        pipe.execute()
    lost = lost_by_redis(engine, during=lambda: engine.info("persistence")[field] == "1")
    assert all(each > 0 for each in lost), lost


def settle(engine: Any) -> None:
    """What was made until now is on the disk."""
    engine._supply.settle()


def lost_by_postgres(engine: PostgresEngine) -> list[int | None]:
    """How many commits that were answered are gone; None where the table itself is."""
    engine.query("CREATE TABLE log (n int)")
    engine.query("CHECKPOINT")
    settle(engine)  # fsync off: the table is not the question
    lost: list[int | None] = []
    for _ in range(CUTS):
        with psycopg.connect(engine.url, autocommit=True) as client:
            before = client.execute("SELECT count(*) FROM log").fetchone()
            for at in range(60):
                client.execute("INSERT INTO log VALUES (%s)", (at,))
            engine.power_cut()
            with contextlib.suppress(psycopg.Error):
                client.close()
        engine.start()
        after = engine.query("SELECT count(*) FROM log")
        assert before is not None
        lost.append(before[0] + 60 - int(after[0][0] or 0))
    return lost


@pytest.mark.parametrize(
    ("config", "every"), [("default", False), ("synchronous-commit-off", True), ("fsync-off", True)]
)
def test_postgres_loses_exactly_where_it_was_told_not_to_wait(
    postgres_engine_factory: EngineFactory, config: str, every: bool
):
    # By default it writes the log five times a second: now and then right before our cut.
    engine = postgres_engine_factory(
        config=config, power="block", settings={"wal_writer_delay": "10s"}
    )
    for lost in lost_by_postgres(engine):
        assert lost is not None
        assert lost > 0 if every else lost == 0


def lost_by_sqlite(engine: SqliteEngine, journal: str, synchronous: str, writes: int) -> list[int]:
    lost = []
    for number in range(CUTS):
        db = sqlite3.connect(engine.path, isolation_level=None)
        db.execute(f"PRAGMA journal_mode={journal}").fetchall()
        db.execute(f"PRAGMA synchronous={synchronous}")
        if number == 0:
            db.execute("CREATE TABLE log (n INTEGER)")
            settle(engine)  # the table is not the question
        before = db.execute("SELECT count(*) FROM log").fetchone()[0]
        for at in range(writes):
            db.execute("INSERT INTO log VALUES (?)", (at,))
        engine.power_cut()
        with contextlib.suppress(sqlite3.Error):
            db.close()
        again = sqlite3.connect(engine.path)
        lost.append(before + writes - again.execute("SELECT count(*) FROM log").fetchone()[0])
        again.close()
    return lost


@pytest.mark.parametrize(
    ("journal", "synchronous", "least", "most"),
    [
        ("WAL", "FULL", 0, 0),
        ("WAL", "NORMAL", 1, 100),
        ("WAL", "OFF", 100, 100),
        ("DELETE", "EXTRA", 0, 0),
        # The journal's removal is not synced: it is found again, and takes the last commit back.
        ("DELETE", "FULL", 1, 1),
    ],
)
def test_sqlite_loses_what_its_pragmas_say(
    sqlite_engine_factory: EngineFactory, journal: str, synchronous: str, least: int, most: int
):
    engine = sqlite_engine_factory(power="block")
    for lost in lost_by_sqlite(engine, journal, synchronous, writes=100):
        assert least <= lost <= most


def _chroma(engine: Any, path: str, body: object | None) -> Any:
    base = f"{engine.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def test_a_chroma_server_keeps_what_is_still_in_its_queue(chroma_engine_factory: EngineFactory):
    engine = chroma_engine_factory(power="block")
    made = _chroma(engine, "", {"name": "memory"})
    for at in range(20):
        records = {"ids": [str(at)], "embeddings": [[1.0, at]], "documents": [f"turn {at}"]}
        _chroma(engine, f"/{made['id']}/add", records)
    evidence = engine.power_cut()
    engine.start()
    found = _chroma(engine, f"/{made['id']}/get", {})
    assert sorted(found["documents"]) == sorted(f"turn {at}" for at in range(20))
    assert evidence.facts["mechanism"] == "block"


def test_an_engine_started_without_power_says_how_to_get_it(redis_engine: RedisEngine):
    with pytest.raises(UsageError, match=r"start_engine\('redis', power='best'\)"):
        redis_engine.power_cut()


def test_a_replica_is_not_on_the_disk_that_loses_its_power(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-always", power="block")
    engine.call("SET", "k", "v")
    with engine.replica() as replica:
        assert not str(replica.data_dir).startswith(str(Path(engine.data_dir).parents[1]))
        engine.power_cut()
        assert replica.call("GET", "k") == "v"


@pytest.mark.parametrize("asked", [{"provider": "docker"}, {"config": "cluster"}])
def test_only_one_engine_of_this_machine_has_a_power_to_cut(
    redis_engine_factory: EngineFactory, asked: dict[str, Any]
):
    with pytest.raises(UsageError, match="one engine of the provider local"):
        redis_engine_factory(power="block", **asked)


SERVICE = """
import http.server, os, sys
os.chdir(os.environ["DATA_DIR"])

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/health":
            with open("memory.txt", "a") as file:
                file.write(self.path)
                file.flush()
                if self.path == "/synced":
                    os.fsync(file.fileno())
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page).serve_forever()
"""


def test_a_service_that_says_200_before_the_disk_has_it_is_shown_losing(app_service: Any):
    service = app_service([sys.executable, "-c", SERVICE], power="block")
    for path in ("/synced", "/not-synced"):
        with urllib.request.urlopen(service.url + path, timeout=10) as reply:
            assert reply.status == 200
    evidence = service.power_cut()
    service.start()
    assert (service.data_dir / "memory.txt").read_text() == "/synced"
    assert evidence.facts["unsynced_bytes"] > 0
