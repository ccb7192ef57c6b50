"""What a Redis says of itself becomes findings, and nothing is written to find them."""

from __future__ import annotations

import shlex
import time
from typing import Any

import pytest

import holdfast
from holdfast import Durability, Message
from holdfast.doctor import Hazard, Severity, Soundness, assert_sound, audit
from holdfast.doctor.redis_rules import RedisSeen, eviction
from holdfast.doctor.ttl import Key, Sample, judge, shape_of
from tests.doctor.conftest import OnDisk, about, verdicts, worst

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness
SECRET = "s3cret"


@pytest.fixture
def redis(on_disk: OnDisk) -> Any:
    return on_disk("redis", config="aof-always")


def limited(engine: Any, *rights: str) -> str:
    """The URL of a user who may not do everything."""
    engine.call("ACL", "SETUSER", "app", "on", f">{SECRET}", "~*", "+@all", *rights)
    return str(engine.url.replace(f":{engine.password}@", f"app:{SECRET}@"))


@pytest.mark.parametrize("config", ["rdb-only", "aof-everysec", "no-persistence", "aof-rewriting"])
def test_the_change_that_it_names_is_the_cure(on_disk: OnDisk, config: str):
    engine = on_disk("redis", config=config)
    before = audit(engine.url)
    assert worst(before) is Severity.CRITICAL
    for command in [line for finding in before.findings for line in finding.commands]:
        program, *words = shlex.split(command)
        assert program == "redis-cli"
        if words != ["CONFIG", "REWRITE"]:  # this server was started without a file
            engine.call(*words)
    assert verdicts(audit(engine.url)) == (SOUND, SOUND)


@pytest.mark.usefixtures("nothing_is_temporary")
def test_a_sound_server_is_sound(redis: Any):
    found = assert_sound(redis.url)
    assert found.exit_code == 0
    assert found.findings == ()
    assert found.ack_durability is Durability.DISK
    assert found.facts["version"] == redis.version


@pytest.mark.parametrize(
    ("settings", "verdict", "words"),
    [
        ({"maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"}, UNSOUND, "any session"),
        ({"maxmemory": "50mb", "maxmemory-policy": "volatile-ttl"}, UNSOUND, "time to live"),
        ({"maxmemory": "50mb"}, SOUND, ""),
        ({"maxmemory-policy": "allkeys-lfu"}, SOUND, ""),
    ],
)
def test_eviction(on_disk: OnDisk, settings: dict[str, str], verdict: Soundness, words: str):
    found = audit(on_disk("redis", config="aof-always", settings=settings).url)
    assert found.sound[Hazard.EVICTION] is verdict
    assert words in about(found, Hazard.EVICTION)
    armed = "maxmemory-policy" in settings
    assert any("noeviction" in line for one in found.findings for line in one.commands) is armed


def test_a_server_that_is_nearly_full_is_named(on_disk: OnDisk):
    engine = on_disk("redis", config="aof-always", settings={"maxmemory": "100mb"})
    assert not any("of the memory limit" in one.why for one in audit(engine.url).findings)
    used = int(engine.info("memory")["used_memory"])
    engine.call("CONFIG", "SET", "maxmemory", str(int(used * 1.05)))
    assert any("of the memory limit" in one.why for one in audit(engine.url).findings)


@pytest.mark.parametrize(("used", "limit", "told"), [(6, 0, True), (4, 0, False), (6, 20, False)])
def test_a_server_without_a_limit_needs_room_beside_it(used: int, limit: int, told: bool):
    info = {"used_memory": str(used), "total_system_memory": "10"}
    config = {"maxmemory": str(limit), "maxmemory-policy": "noeviction"}
    found = eviction(RedisSeen(config, info)).findings
    assert any("of the machine's memory is used" in one.why for one in found) is told


def test_replicas_and_failover(redis: Any):
    assert audit(redis.url).sound[Hazard.FAILOVER] is ABSENT
    replica = redis.replica()
    found = audit(redis.url)
    assert found.sound[Hazard.FAILOVER] is UNSOUND
    assert "min-replicas-to-write 0" in about(found, Hazard.FAILOVER)
    assert [measure.name for measure in found.measures] == ["replica_lag_seconds"]
    redis.call("CONFIG", "SET", "min-replicas-to-write", "1")
    [bounded] = [one for one in audit(redis.url).findings if Hazard.FAILOVER in one.hazards]
    assert bounded.severity is Severity.NOTE
    assert audit(replica.url).sound[Hazard.STALENESS] is UNSOUND


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"session:a": 86400, "session:b": None}, "1 with a time to live, 1 without"),
        ({"session:a": 300, "session:b": 290}, "short for a memory"),
        (
            {"chat:a:1": 90000, "chat:a:2": 95000, "chat:b:1": 90000, "chat:b:2": 96000},
            "the oldest expire first",
        ),
    ],
)
def test_times_to_live_in_a_sample(redis: Any, keys: dict[str, int | None], words: str):
    for name, left_s in keys.items():
        redis.call("SET", name, "x")
        if left_s is not None:
            redis.call("EXPIRE", name, str(left_s))
    found = audit(redis.url)
    assert found.sound[Hazard.EXPIRY] is UNSOUND
    assert words in about(found, Hazard.EXPIRY)


@pytest.mark.parametrize(
    ("keys", "verdict"),
    [
        ({}, ABSENT),
        ({"session:a": -1}, ABSENT),
        ({"session:a": 90_000_000, "session:b": 99_000_000}, SOUND),
        ({"cache:a": 5_000, "cache:b": 90_000}, SOUND),  # a cache may be short
        ({"app:session:a": 90_000_000, "app:session:b": 99_000_000}, SOUND),  # one stem: sessions
        ({"cache:a": 90_000, "celery": -1, "cache:b": 80_000}, SOUND),
    ],
)
def test_what_is_meant_so_raises_no_alarm(keys: dict[str, int], verdict: Soundness):
    sample = Sample(tuple(Key(name, left) for name, left in keys.items()), complete=True)
    assert judge(sample).sound()[Hazard.EXPIRY] is verdict


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("session:a", "session:…"),
        ("agents:session:7f3", "agents:session:…"),
        ("agents:session:7f3:messages", "agents:session:…:messages"),
        ("user42:chat", "…:chat"),
        ("session:chat-123", "session:…"),
        ("celery", "celery"),
        ("", ""),
    ],
)
def test_the_shape_of_a_key(name: str, shape: str):
    assert shape_of(name) == shape


def test_the_sample_of_a_large_server_is_bounded(redis: Any):
    redis.call("EVAL", "for at = 1, 30000 do redis.call('SET', 'k:' .. at, at) end", "0")
    begin = time.monotonic()
    found = audit(redis.url)
    assert time.monotonic() - begin < 30
    looked = int(found.facts["keys looked at"].split()[3])
    assert 1000 <= looked < 3000


def test_our_own_keys_are_passed_over_for_a_while_only(redis: Any):
    fill = "for at = 1, 30000 do redis.call('SET', 'hf:{x' .. at .. '}:head', at) end"
    redis.call("EVAL", fill, "0")
    redis.call("CONFIG", "RESETSTAT")
    assert audit(redis.url).facts["keys looked at"].startswith("a sample of 0")
    calls = redis.info("commandstats")["cmdstat_scan"].partition(",")[0]
    assert int(calls.removeprefix("calls=")) < 120


def test_our_own_records_are_sampled(redis: Any):
    with holdfast.connect(redis.url) as store:
        for name in ("a", "b", "c"):
            store.append(name, [Message("user", "x"), Message("assistant", "y")], ttl_s=90_000)
    whole = audit(redis.url)
    assert whole.sound[Hazard.DAMAGE] is SOUND
    assert whole.sound[Hazard.EXPIRY] is ABSENT, "our heads have no time to live by design"
    assert whole.facts["holdfast records read"] == "6 of 3 session(s)"
    redis.call("LSET", "hf:{default.a}:log", "1", "{}")
    redis.call("RPOP", "hf:{default.b}:log")
    damaged = audit(redis.url)
    assert damaged.sound[Hazard.DAMAGE] is UNSOUND
    assert "'a', number 2" in about(damaged, Hazard.DAMAGE)
    assert "'b' counts 2, has 1" in about(damaged, Hazard.DAMAGE)
    assert audit(redis.url, namespace="other").sound[Hazard.DAMAGE] is UNKNOWN


def test_it_never_writes(redis: Any):
    with holdfast.connect(redis.url) as store:
        store.append("a", Message("user", "x"), ttl_s=90_000)
    redis.call("SET", "session:a", "x")
    redis.call("CONFIG", "RESETSTAT")
    before = redis.info("persistence")["rdb_changes_since_last_save"]
    audit(redis.url)
    assert redis.info("persistence")["rdb_changes_since_last_save"] == before
    used = [name.removeprefix("cmdstat_") for name in redis.info("commandstats")]
    assert {"scan", "pttl", "config|get", "lrange"} <= set(used), "it did look"
    for name in used:
        [(_, _, flags, *_)] = redis.call("COMMAND", "INFO", name)
        assert "write" not in flags, name


@pytest.mark.usefixtures("nothing_is_temporary")
def test_where_config_is_forbidden_it_says_so(redis: Any):
    found = audit(limited(redis, "-config"))
    assert found.exit_code == 3
    assert verdicts(found) == (UNKNOWN, UNKNOWN)
    assert found.sound[Hazard.EVICTION] is SOUND, "INFO tells the policy"
    assert any(words.startswith("the configuration (appendonly") for words in found.unseen)
    assert SECRET not in repr(found)
    with pytest.raises(AssertionError, match="survives power could not be seen"):
        assert_sound(limited(redis, "-config"))


def test_without_config_what_info_tells_is_enough_for_a_finding(on_disk: OnDisk):
    engine = on_disk("redis", config="rdb-only")
    found = audit(limited(engine, "-config"))
    assert found.exit_code == 1
    assert verdicts(found) == (UNSOUND, UNSOUND)


def test_where_nothing_is_allowed_everything_is_unknown(redis: Any):
    found = audit(limited(redis, "-@all", "+ping"))
    assert found.exit_code == 3
    assert set(found.sound.values()) == {UNKNOWN}
    assert len(found.unseen) >= 3


@pytest.mark.parametrize("login", ["app:wr0ng", ":wr0ng"])
def test_a_wrong_password_is_could_not_look_and_is_not_shown(redis: Any, login: str):
    limited(redis)
    found = audit(redis.url.replace(f":{redis.password}@", f"{login}@"))
    assert found.exit_code == 3
    assert "wr0ng" not in repr(found)


def test_an_engine_that_hangs_costs_bounded_time(redis: Any):
    redis.pause()
    begin = time.monotonic()
    found = audit(redis.url, time_s=0.5)
    assert time.monotonic() - begin < 60
    assert found.exit_code == 3
    redis.resume()


def test_a_data_directory_in_memory_is_seen(engine_factory: Any):
    found = audit(engine_factory("redis", config="aof-always", storage="memory").url)
    assert verdicts(found) == (SOUND, UNSOUND)
    assert "is on tmpfs" in about(found, Hazard.POWER)
