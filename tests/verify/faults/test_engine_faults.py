"""Kill, pause and another configuration, upon any engine that has the power."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.faults import kill, paused, reconfigure


def test_a_killed_engine_answers_nobody_until_it_is_started(redis_server: Engine) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("a", "1")
        assert kill(redis_server).fault == "kill"
        with pytest.raises(redis.ConnectionError):
            client.ping()
        redis_server.start()
        assert client.get("a") == b"1"


def test_a_paused_engine_keeps_silent_inside_the_block(redis_server: Engine) -> None:
    with redis.Redis.from_url(redis_server.url, socket_timeout=0.1) as client:
        client.ping()
        with paused(redis_server) as evidence, pytest.raises(redis.TimeoutError):
            client.ping()
        assert evidence.fault == "pause"
        assert client.ping()


def test_a_paused_engine_runs_again_after_a_failure_in_the_block(redis_server: Engine) -> None:
    with pytest.raises(ZeroDivisionError), paused(redis_server):
        _ = 1 / 0
    with redis.Redis.from_url(redis_server.url, socket_timeout=1) as client:
        assert client.ping()


def test_redis_with_another_configuration_tells_the_difference(redis_server: Engine) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("a", "1")
        evidence = reconfigure(redis_server, config="aof-everysec")
        assert evidence.facts["changed"]["appendfsync"] == ("always", "everysec")
        assert client.get("a") == b"1"


def test_postgres_with_another_configuration_tells_the_difference(
    postgres_server: Engine,
) -> None:
    evidence = reconfigure(postgres_server, config="fsync-off")
    assert evidence.facts["changed"]["fsync"] == ("on", "off")
    with psycopg.connect(postgres_server.url) as client:
        assert client.execute("SHOW fsync").fetchone() == ("off",)


def test_the_same_configuration_again_is_no_fault(redis_server: Engine) -> None:
    with pytest.raises(FaultNotProven, match="no difference"):
        reconfigure(redis_server, config="aof-always")


def test_an_engine_without_the_power_is_refused(tmp_path: Path) -> None:
    with start_engine("sqlite", storage=tmp_path) as engine:
        with pytest.raises(UsageError, match="cannot be killed"):
            kill(engine)
        with pytest.raises(UsageError, match="cannot be paused"), paused(engine):
            pass
        with pytest.raises(UsageError, match="cannot be restarted"):
            reconfigure(engine)
