"""Redis and Valkey as real processes: configurations, crashes, versions, replicas, a cluster."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import EngineFailed, EngineMissing, FaultNotProven, UsageError
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.cluster import RedisCluster
from holdfast.verify.engines.raw_protocol import ReplyError
from holdfast.verify.engines.redis import RedisEngine

IN_FORCE = {
    "rdb-only": {"appendonly": "no", "save": "3600 1 300 100 60 10000"},
    "aof-everysec": {"appendonly": "yes", "appendfsync": "everysec", "save": ""},
    "aof-always": {"appendonly": "yes", "appendfsync": "always", "save": ""},
    "mixed": {"appendonly": "yes", "appendfsync": "everysec", "save": "3600 1 300 100 60 10000"},
    "no-persistence": {"appendonly": "no", "save": ""},
    "aof-rewriting": {"appendfsync": "always", "no-appendfsync-on-rewrite": "yes"},
}
VERSIONS = [("redis", "6.2"), ("redis", "7"), ("valkey", "9")]


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
@pytest.mark.parametrize("config", IN_FORCE)
def test_a_configuration_is_in_force_in_every_version(
    engine_factory: EngineFactory, kind: str, version: str, config: str
) -> None:
    engine = engine_factory(kind, version=version, config=config)
    assert engine.version.startswith(version + ".")
    read = {name: engine.call("CONFIG", "GET", name)[1] for name in IN_FORCE[config]}
    assert read == IN_FORCE[config]


@pytest.mark.parametrize(
    ("config", "left"), [("aof-always", "here"), ("no-persistence", None), ("rdb-only", None)]
)
def test_sigkill_keeps_what_the_configuration_keeps(
    redis_engine_factory: EngineFactory, config: str, left: str | None
) -> None:
    engine = redis_engine_factory(config=config)
    engine.call("SET", "memory", "here")
    evidence = engine.kill()
    assert evidence.facts["pids"]
    assert engine.pid is None
    engine.start()
    assert engine.call("GET", "memory") == left


def test_a_clean_stop_of_rdb_only_saves(redis_engine_factory: EngineFactory) -> None:
    engine = redis_engine_factory(config="rdb-only")
    engine.call("SET", "memory", "here")
    engine.stop()
    assert engine.start().call("GET", "memory") == "here"


def test_killing_the_dead_is_not_a_fault_that_landed(redis_engine: RedisEngine) -> None:
    redis_engine.kill()
    for fault in (redis_engine.kill, redis_engine.pause, redis_engine.resume):
        with pytest.raises(FaultNotProven, match="not running"):
            fault()


def test_a_paused_engine_is_silent_and_answers_again_with_its_data(
    redis_engine: RedisEngine,
) -> None:
    redis_engine.call("SET", "memory", "here")
    evidence = redis_engine.pause()
    assert list(evidence.facts["states"].values()) == ["T"]
    with pytest.raises(TimeoutError):
        redis_engine_ping(redis_engine.port)
    redis_engine.resume()
    assert redis_engine.call("GET", "memory") == "here"


def redis_engine_ping(port: int) -> object:
    from holdfast.verify.engines.raw_protocol import redis_call  # noqa: PLC0415 - one use

    return redis_call(port, "PING", timeout_s=0.2)


def test_a_paused_engine_can_be_stopped_killed_and_closed(redis_engine: RedisEngine) -> None:
    redis_engine.pause()
    redis_engine.stop()
    redis_engine.start().pause()
    redis_engine.kill()
    redis_engine.start().pause()
    redis_engine.close()


def test_restart_changes_configuration_and_settings_on_the_same_data(
    redis_engine_factory: EngineFactory,
) -> None:
    engine = redis_engine_factory(config="aof-always", settings={"maxmemory": "50mb"})
    engine.call("SET", "memory", "here")
    url = engine.url
    evidence = engine.restart(config="aof-everysec")
    assert (evidence.facts["before"]["config"], engine.config) == ("aof-always", "aof-everysec")
    assert evidence.facts["before"]["pid"] != evidence.facts["after"]["pid"]
    assert evidence.facts["in_force"]["appendfsync"] == "everysec"
    assert evidence.facts["in_force"]["maxmemory"] == str(50 * 1024 * 1024)
    engine.restart(settings={"maxmemory": 0})
    assert engine.call("CONFIG", "GET", "maxmemory")[1] == "0"
    assert (engine.url, engine.call("GET", "memory")) == (url, "here")


def test_a_refused_restart_leaves_the_engine_running(redis_engine: RedisEngine) -> None:
    pid = redis_engine.pid
    with pytest.raises(EngineMissing):
        redis_engine.restart(version="4")
    assert redis_engine.pid == pid


def test_valkey_takes_over_what_redis_wrote_and_not_the_other_way(
    redis_engine: RedisEngine,
) -> None:
    redis_engine.call("SET", "memory", "here")
    evidence = redis_engine.restart(kind="valkey")
    assert redis_engine.kind == "valkey"
    assert evidence.facts["after"]["version"].startswith("9.")
    assert redis_engine.call("GET", "memory") == "here"
    with pytest.raises(UsageError, match="redis does not read the files of valkey"):
        redis_engine.restart(kind="redis")
    assert redis_engine.call("GET", "memory") == "here"


@pytest.mark.parametrize("config", ["rdb-only", "aof-always", "mixed"])
def test_data_of_6_2_are_read_by_7_in_the_same_directory(
    redis_engine_factory: EngineFactory, config: str
) -> None:
    engine = redis_engine_factory(version="6.2", config=config)
    engine.call("RPUSH", "session", "first", "second")
    evidence = engine.restart(version="7")
    assert evidence.facts["before"]["version"].startswith("6.2.")
    assert evidence.facts["after"]["version"].startswith("7.")
    assert engine.version.startswith("7.")
    assert engine.call("LRANGE", "session", "0", "-1") == ["first", "second"]


def test_valkey_has_waitaof_and_redis_7_0_does_not(
    valkey_engine: RedisEngine, redis_engine_factory: EngineFactory
) -> None:
    valkey_engine.call("SET", "memory", "here")
    assert valkey_engine.call("WAITAOF", "1", "0", "1000")[0] == 1
    with pytest.raises(ReplyError, match="unknown command"):
        redis_engine_factory(version="7.0").call("WAITAOF", "1", "0", "1000")


def test_aof_rewriting_really_rewrites_while_it_is_written_to(
    redis_engine_factory: EngineFactory,
) -> None:
    engine = redis_engine_factory(config="aof-rewriting")
    deadline = time.monotonic() + 30
    number = 0
    while engine.info("persistence")["aof_rewrite_in_progress"] != "1":
        assert time.monotonic() < deadline, f"no rewrite after {number} writes"
        engine.call("SET", f"key {number}", "x" * 500)
        number += 1
    evidence = engine.kill()
    assert len(evidence.facts["pids"]) == 2, "the rewriting child is killed too"


def test_a_bad_value_fails_with_the_engines_own_words(redis_engine_factory: EngineFactory) -> None:
    with pytest.raises(EngineFailed, match="argument must be a memory value") as caught:
        redis_engine_factory(settings={"maxmemory": "plenty"})
    assert caught.value.backend == "redis"


def test_a_taken_port_fails_with_the_engines_own_words(
    redis_engine: RedisEngine, redis_engine_factory: EngineFactory
) -> None:
    with pytest.raises(EngineFailed, match="Address already in use"):
        redis_engine_factory(port=redis_engine.port)
    assert redis_engine.call("PING") == "PONG"


def test_after_a_failed_restart_it_comes_back_with_good_settings(redis_engine: RedisEngine) -> None:
    redis_engine.call("SET", "memory", "here")
    with pytest.raises(EngineFailed):
        redis_engine.restart(settings={"maxmemory": "plenty"})
    redis_engine.restart(settings={})
    assert redis_engine.call("GET", "memory") == "here"


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_a_held_replica_serves_the_past_and_then_catches_up(
    engine_factory: EngineFactory, kind: str, version: str
) -> None:
    primary = engine_factory(kind, version=version)
    primary.call("SET", "memory", "old")
    replica = primary.replica()
    assert replica.call("GET", "memory") == "old"
    replica.pause_replay()
    primary.call("SET", "memory", "new")
    assert replica.call("GET", "memory") == "old"
    replica.resume_replay()
    assert replica.call("GET", "memory") == "new"
    home = replica.data_dir
    primary.close()
    assert not home.exists()


def test_a_cluster_of_three_serves_every_slot_and_survives_a_kill(
    redis_engine_factory: EngineFactory,
) -> None:
    cluster = redis_engine_factory(config="cluster")
    owners = {_owner(cluster, f"key {number}") for number in range(30)}
    assert owners == {0, 1, 2}
    cluster.kill()
    cluster.start()
    assert {_owner(cluster, f"key {number}", "GET") for number in range(30)} == {0, 1, 2}


def _owner(cluster: RedisCluster, key: str, verb: str = "SET") -> int:
    """Which node took the command; the other two must send us to it."""
    taken = []
    for at, node in enumerate(cluster.nodes):
        try:
            reply = node.call(verb, key, *(["value"] if verb == "SET" else []))
        except ReplyError as moved:
            assert str(moved).startswith("MOVED")  # noqa: PT017 - the other outcome is checked too
        else:
            assert reply in ("OK", "value")
            taken.append(at)
    (owner,) = taken
    return owner
