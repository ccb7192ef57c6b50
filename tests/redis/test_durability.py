"""An ack survives what the engine really keeps, or the setup is refused with the setting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Durability, EngineUnreachable, OutcomeUnknown, Refused, StorageWarning
from holdfast.backends.redis.durability import Assessment, Seen, Waitaof, decide
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.faults import Proxy
from tests.contract.harness import AsyncApi, say, texts
from tests.waiting import wait_until

MEMORY, PROCESS, DISK, REPLICA = Durability
ALWAYS = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
ONLINE = {"slave1": "ip=127.0.0.1,port=1,state=online,offset=1,lag=0"}
EVERYSEC = {**ALWAYS, "appendfsync": "everysec"}


@pytest.mark.parametrize(
    ("engine", "config", "settings", "durability", "words"),
    [
        ("redis 7", "aof-always", {}, DISK, ""),
        ("redis 6.2", "aof-always", {}, DISK, ""),
        ("valkey 9", "aof-always", {}, DISK, ""),
        ("redis 7", "aof-everysec", {}, MEMORY, "CONFIG SET appendfsync always"),
        ("redis 6.2", "mixed", {}, MEMORY, "CONFIG SET appendfsync always"),
        ("valkey 9", "aof-everysec", {}, MEMORY, "was seen to answer before the sync"),
        ("redis 7", "aof-always", {"appendfsync": "no"}, PROCESS, "CONFIG SET appendfsync always"),
        ("valkey 9", "aof-always", {"appendfsync": "no"}, PROCESS, "appendfsync always"),
        ("redis 7", "rdb-only", {}, MEMORY, "CONFIG SET appendonly yes"),
        ("redis 7", "no-persistence", {}, MEMORY, "CONFIG SET appendonly yes"),
        ("redis 7", "aof-rewriting", {}, PROCESS, "no-appendfsync-on-rewrite no"),
        ("redis 7", "aof-always", {"maxmemory-policy": "allkeys-lru"}, MEMORY, "noeviction"),
        ("valkey 9", "aof-always", {"maxmemory-policy": "volatile-ttl"}, MEMORY, "noeviction"),
    ],
)
@pytest.mark.parametrize("api", [holdfast.connect, AsyncApi])
def test_the_durability_is_what_the_configuration_gives(
    engine_factory: EngineFactory,
    api: Callable[..., Any],
    engine: str,
    config: str,
    settings: dict[str, str],
    durability: Durability,
    words: str,
):
    kind, version = engine.split()
    server = engine_factory(kind, version=version, config=config, settings=settings)
    with api(server.url, require=durability) as store:
        assert store.durability is durability
        assert store.append("s", say("x")).durability is durability
    if durability < DISK:
        with pytest.raises(Refused, match=words) as refusal:
            api(server.url)
        assert f"keeps {durability.name} at most, and DISK is required" in str(refusal.value)
        assert server.call("EXISTS", "hf:{default.s}:head") == 1


def test_where_waitaof_waits_it_makes_everysec_safe_and_serves_many_at_once(redis8: Any):
    engine = redis8(config="aof-everysec")
    with holdfast.connect(engine.url) as store:
        store.append("s", say("first"))
        begin = time.monotonic()
        threads = [
            threading.Thread(target=lambda: store.append("s", say("more"))) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - begin < 10, "each of 20 appends waited for a sync of its own"
        assert store.durability is DISK
        assert len(store.history("s")) == 21


def test_where_rewrites_hold_syncs_up_waitaof_waits_for_them(valkey_engine_factory: EngineFactory):
    engine = valkey_engine_factory(config="aof-rewriting")
    with holdfast.connect(engine.url) as store:
        assert store.append("s", say("x")).durability is DISK


def test_a_retry_waits_for_the_first_try_too(redis8: Any):
    """The first try is in memory and not yet synced; whoever finds its key must not say DISK."""
    engine = redis8(config="aof-everysec")
    with Proxy(engine.url) as proxy, holdfast.connect(engine.url) as other:
        with holdfast.connect(proxy.url) as store:
            store.append("s", say("a sync has just ended"))
            begin = time.monotonic()
            lost = proxy.swallow_reply(match=b"EVALSHA")
            with pytest.raises(OutcomeUnknown):
                store.append("s", say("x"), key="k")
            lost.landed()
        assert other.append("s", say("x"), key="k").repeated
        assert time.monotonic() - begin > 0.7, "acknowledged before the next sync"


def test_a_replica_that_has_it_is_waited_for(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-always")
    with pytest.raises(Refused, match="no replica is connected"):
        holdfast.connect(engine.url, require=REPLICA)
    replica = engine.replica()
    wait_until(lambda: "state=online" in engine.info("replication").get("slave0", ""))
    url = f"{engine.url}?reply_timeout_s=3"
    with holdfast.connect(url, require=REPLICA) as store:
        assert store.append("s", say("x"), key="a").durability is REPLICA
        assert replica.call("LLEN", "hf:{default.s}:log") == 1
        replica.pause()
        with pytest.raises(OutcomeUnknown, match="did not confirm in time"):
            store.append("s", say("y"), key="b")
        replica.resume()
        assert store.append("s", say("y"), key="b").durability is REPLICA
        assert texts(store.history("s")) == ["x", "y"]


def test_a_replica_is_no_place_to_write(redis_engine_factory: EngineFactory):
    replica = redis_engine_factory(config="aof-always").replica()
    with pytest.raises(Refused, match="is a replica"):
        holdfast.connect(replica.url)
    with pytest.raises(Refused, match="primary only"):
        holdfast.connect(replica.url, replicas=[replica.url])


@pytest.mark.parametrize("api", [holdfast.connect, AsyncApi])
def test_a_setting_changed_while_we_run_is_noticed_and_nothing_is_written(
    redis_engine_factory: EngineFactory, api: Callable[..., Any]
):
    engine = redis_engine_factory(config="aof-always")
    with api(engine.url) as store:
        store.append("s", say("kept"))
        engine.call("CONFIG", "SET", "appendfsync", "everysec")
        with pytest.raises(OutcomeUnknown, match="settings were changed.*appendfsync is everysec"):
            store.append("s", say("x"))
        assert refused(store)
        before = texts(store.history("s"))
        assert refused(store)
        assert texts(store.history("s")) == before
        engine.call("CONFIG", "SET", "appendfsync", "always")
        wait_until(lambda: not refused(store), within_s=30)


@pytest.mark.parametrize("api", [holdfast.connect, AsyncApi])
@pytest.mark.parametrize("version", ["6.2", "7"])
@pytest.mark.parametrize(("setting", "value"), [("appendonly", "no"), ("appendfsync", "no")])
def test_no_ack_says_more_than_the_settings_gave_when_it_was_written(
    redis_engine_factory: EngineFactory, api: Any, version: str, setting: str, value: str
):
    """From the very first write after the change on, whether it is refused or acknowledged for less."""
    engine = redis_engine_factory(config="aof-always", version=version)
    with api(engine.url) as strict, api(engine.url, require=Durability.MEMORY) as lax:
        for store in (strict, lax):
            assert store.append("s", say("kept")).durability is Durability.DISK
        engine.call("CONFIG", "SET", setting, value)
        assert lax.append("s", say("x")).durability < Durability.DISK
        with pytest.raises((OutcomeUnknown, Refused), match=setting):
            strict.append("s", say("x"))
        with pytest.raises(Refused, match=setting):
            strict.append("s", say("x"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("no-appendfsync-on-rewrite", "yes"), ("maxmemory-policy", "allkeys-lru")],
)
def test_what_may_cost_something_later_is_noticed_within_a_second(
    redis_engine_factory: EngineFactory, setting: str, value: str
):
    engine = redis_engine_factory(config="aof-always")
    with holdfast.connect(engine.url) as store:
        store.append("s", say("kept"))
        engine.call("CONFIG", "SET", setting, value)
        changed_s = time.monotonic()
        with pytest.raises(Refused, match=setting):
            while store.append("s", say("x")).last:
                assert time.monotonic() < changed_s + 2


def refused(store: Any) -> bool:
    try:
        store.append("s", say("x"))
    except Refused as refusal:
        return "appendfsync always" in str(refusal)
    return False


def test_a_restart_with_another_policy_is_noticed_by_the_first_write(
    redis_engine_factory: EngineFactory,
):
    engine = redis_engine_factory(config="aof-always")
    with holdfast.connect(engine.url) as store:
        store.append("s", say("kept"))
        engine.restart(config="rdb-only")
        with pytest.raises(Refused, match="appendonly is no"):
            store.append("s", say("x"))


def test_where_config_is_forbidden_nothing_is_claimed_unless_it_is_stated(
    redis_engine_factory: EngineFactory,
):
    engine = redis_engine_factory(config="aof-always")
    engine.call("ACL", "SETUSER", "app", "on", ">s3cret", "~hf:*", "+@all", "-config")
    url = engine.url.replace(f":{engine.password}@", "app:s3cret@")
    with pytest.raises(Refused, match="CONFIG is forbidden") as refusal:
        holdfast.connect(url)
    assert "?durability=disk" in str(refusal.value)
    assert "s3cret" not in str(refusal.value) + repr(refusal.value)
    with pytest.warns(StorageWarning, match="was stated in the URL") as warned:
        store = holdfast.connect(f"{url}?durability=disk")
    with store:
        assert store.append("s", say("x")).durability is DISK
    assert "s3cret" not in str(warned[0].message) + repr(store)


def test_what_is_seen_goes_before_what_is_stated(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="rdb-only")
    with pytest.raises(Refused, match="appendonly is no"):
        holdfast.connect(f"{engine.url}?durability=disk")


def test_even_where_config_is_forbidden_eviction_is_seen(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-always", settings={"maxmemory-policy": "allkeys-lfu"})
    engine.call("ACL", "SETUSER", "app", "on", ">s3cret", "~hf:*", "+@all", "-config")
    url = engine.url.replace(f":{engine.password}@", "app:s3cret@")
    with pytest.raises(Refused, match="maxmemory-policy is allkeys-lfu"):
        holdfast.connect(f"{url}?durability=disk")


def test_a_user_who_may_not_write_is_told_so(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-always")
    engine.call("ACL", "SETUSER", "app", "on", ">s3cret", "~other:*", "+@all")
    url = engine.url.replace(f":{engine.password}@", "app:s3cret@")
    with holdfast.connect(url) as store:
        with pytest.raises(Refused, match="may not do that"):
            store.append("s", say("x"))


@pytest.mark.parametrize("login", ["app:wr0ng", "nobody:wr0ng", ":wr0ng"])
def test_a_wrong_password_is_refused_and_never_repeated(
    redis_engine_factory: EngineFactory, login: str
):
    engine = redis_engine_factory(config="aof-always")
    engine.call("ACL", "SETUSER", "app", "on", ">s3cret", "~hf:*", "+@all")
    with pytest.raises((Refused, EngineUnreachable)) as refusal:
        holdfast.connect(engine.url.replace(f":{engine.password}@", f"{login}@"))
    assert "wr0ng" not in str(refusal.value) + repr(refusal.value) + str(refusal.value.__cause__)


@pytest.mark.parametrize(
    ("seen", "require", "assessment"),
    [
        (Seen(ALWAYS, {}), DISK, Assessment(DISK)),
        (Seen(EVERYSEC, {}, Waitaof.TRUE), DISK, Assessment(DISK, wait_disk=True)),
        (Seen(EVERYSEC, {}, Waitaof.TRUE), PROCESS, Assessment(DISK, wait_disk=True)),
        (Seen(None, {}, Waitaof.TRUE), DISK, Assessment(DISK, wait_disk=True)),
        (Seen(ALWAYS, ONLINE), REPLICA, Assessment(REPLICA, wait_replicas=1)),
        (
            Seen(
                EVERYSEC, {"slave0": "ip=a,port=1,state=wait_bgsave,lag=0", **ONLINE}, Waitaof.TRUE
            ),
            REPLICA,
            Assessment(REPLICA, wait_disk=True, wait_replicas=1),
        ),
    ],
)
def test_what_has_to_be_waited_for(seen: Seen, require: Durability, assessment: Assessment):
    assert decide(seen, require, None) == assessment


def test_a_configuration_that_is_seen_in_part_is_hidden_and_not_sound():
    """Some hosted engines answer CONFIG GET for a few names only."""
    part = Seen({"appendfsync": "always"}, {})
    assert decide(part, DISK, None).durability is Durability.MEMORY
    stated = decide(part, DISK, DISK)
    assert stated.durability is DISK
    assert "was stated in the URL" in str(stated.risk)
