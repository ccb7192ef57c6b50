"""No connection left, no memory left: seen by clients, told by the engine, undone after."""

from __future__ import annotations

import psycopg
import pytest
import redis

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.faults import ConnectionsHeld, MemoryLimit


def client_of(engine: Engine) -> redis.Redis:
    return redis.Redis.from_url(engine.url, decode_responses=True)


def test_redis_turns_a_new_client_away_while_all_connections_are_held(
    redis_server: Engine,
) -> None:
    with client_of(redis_server) as early:
        before = early.config_get("maxclients")
        fault = ConnectionsHeld(redis_server.url, connections_max=50)
        evidence = fault.apply()
        assert evidence.facts["connected_clients"] == evidence.facts["maxclients"] == 50
        assert evidence.facts["rejected_connections"] >= 1
        with pytest.raises(redis.ConnectionError), client_of(redis_server) as late:
            late.ping()
        assert early.ping(), "who was there before stays served"
        fault.release()
        fault.release()
        assert early.config_get("maxclients") == before
        with client_of(redis_server) as late:
            assert late.ping()


def test_postgres_turns_a_new_client_away_while_all_connections_are_held() -> None:
    with start_engine("postgres", settings={"max_connections": 10}) as engine:
        with ConnectionsHeld(engine.url) as fault:
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(engine.url)
            fault.release()
            psycopg.connect(engine.url).close()
        fault = ConnectionsHeld(engine.url)
        evidence = fault.apply()
        fault.release()
        assert evidence.facts["connected_clients"] == evidence.facts["max_connections"] == 10


def test_too_many_connections_to_hold_is_not_proven(postgres_server: Engine) -> None:
    with pytest.raises(FaultNotProven, match="none was refused"):
        ConnectionsHeld(postgres_server.url, connections_max=3).apply()


def test_an_engine_without_connections_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be counted"):
        ConnectionsHeld("sqlite:///memory.db")


def test_redis_evicts_keys_that_were_acknowledged(redis_server: Engine) -> None:
    with client_of(redis_server) as client:
        for number in range(500):
            client.set(f"session:{number}", "x" * 1000)
        before = client.config_get("maxmemory*")
        with MemoryLimit(redis_server.url) as fault:
            left = client.dbsize()
            assert left < 500
            assert client.info("stats")["evicted_keys"] == 500 - left
            fault.release()
        assert client.config_get("maxmemory*") == before
        evidence = MemoryLimit(redis_server.url, share=1).apply()
        assert evidence.facts["evicted_keys"] > 0


def test_without_eviction_a_write_is_refused(redis_server: Engine) -> None:
    with client_of(redis_server) as client:
        client.set("a", "1")
        with (
            MemoryLimit(redis_server.url, policy="noeviction"),
            pytest.raises(redis.exceptions.OutOfMemoryError),
        ):
            client.set("b", "2")
        assert client.get("a") == "1"
        client.set("b", "2")


def test_an_empty_redis_has_nothing_to_evict(redis_server: Engine) -> None:
    with pytest.raises(FaultNotProven, match="of 0 keys none"):
        MemoryLimit(redis_server.url).apply()
    with client_of(redis_server) as client:
        assert client.config_get("maxmemory") == {"maxmemory": "0"}


def test_a_policy_that_finds_nothing_to_evict_is_not_proven(
    redis_server: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.verify.faults.pressure._TIMEOUT_S", 0.5)
    with client_of(redis_server) as client:
        client.set("without an expiry", "x" * 1000)
        with pytest.raises(FaultNotProven, match="volatile-lru"):
            MemoryLimit(redis_server.url, policy="volatile-lru").apply()
        assert client.get("without an expiry")


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="share lies"):
        MemoryLimit("redis://127.0.0.1", share=0)
