"""Several servers that are one service: who is who, and what a failover now would lose."""

from __future__ import annotations

import json
import shlex
import urllib.request
from typing import Any

import psycopg
import pytest

from holdfast import Durability
from holdfast.doctor import Audit, Hazard, Severity, Soundness, audit
from holdfast.doctor.redis_members import Sentinel, Sentinels, of_sentinels
from holdfast.pytest_plugin import EngineFactory
from tests.doctor.conftest import about
from tests.waiting import wait_until

SOUND, UNSOUND, *_ = Soundness
SENTINEL_PORTS = ("a:26379", "b:26379", "c:26379")


def lines(found: Audit, word: str) -> list[str]:
    return [line for line in found.topology if line.startswith(word)]


def sentences(found: Audit) -> str:
    return "\n".join(one.sentence() for one in found.findings)


def commands(found: Audit, word: str) -> list[list[str]]:
    """What to type, of the findings that have a word in them."""
    told = [one for one in found.findings if word in one.sentence()]
    assert told, sentences(found)
    return [shlex.split(line) for one in told for line in one.commands]


def test_a_redis_behind_sentinels(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(topology="sentinel")
    primary = engine.primary()
    replicas = [one for one in engine.members if one is not primary]
    first, second, third = engine.sentinels
    found = audit(engine.url)
    assert lines(found, "primary") == [f"primary 127.0.0.1:{primary.port}"]
    assert sorted(line.split()[1] for line in lines(found, "replica")) == sorted(
        f"127.0.0.1:{one.port}:" for one in replicas
    )
    assert all("keeps: appendfsync always" in line for line in lines(found, "replica"))
    assert all(f"names 127.0.0.1:{primary.port}" in one for one in lines(found, "sentinel 127"))
    assert "sentinels: 3 of 3 answer, 2 must agree on a failover" in found.topology
    [now] = lines(found, "a failover now")
    assert "loses the last acknowledged writes" in now
    assert found.sound[Hazard.FAILOVER] is UNSOUND
    assert "quorum" not in sentences(found)
    assert found.to_json()["topology"] == list(found.topology)

    few = audit(engine.url.replace(f",127.0.0.1:{third.port}", f",127.0.0.1:{first.port}"))
    assert "2 of 3 sentinels are in the URL" in about(few, Hazard.FAILOVER), "the first is one"
    assert f"127.0.0.1:{third.port}" in about(few, Hazard.FAILOVER)
    other = audit(engine.url.replace(f":{third.port}", f":{primary.port}"))
    [line] = lines(other, f"sentinel 127.0.0.1:{primary.port}")
    assert "unknown command" in line, "it answers, and is no sentinel"
    for url, advice in (
        (engine.url.replace("?sentinel_auth=yes", ""), "add ?sentinel_auth=yes"),
        (engine.url.replace("/holdfast/", "/nobody/"), "Correct the name"),
    ):
        assert advice in " ".join(audit(url).unseen)

    for one in engine.sentinels:
        one.call("SENTINEL", "SET", "holdfast", "quorum", "1")
    replicas[0].call("CONFIG", "SET", "appendonly", "no")
    weak = audit(engine.url)
    assert "quorum 1 of 3 sentinels" in about(weak, Hazard.FAILOVER)
    assert f"replica 127.0.0.1:{replicas[0].port}: snapshots" in about(weak, Hazard.FAILOVER)
    for _, _, _, _, port, *words in [*commands(weak, "quorum 1"), *commands(weak, "snapshots")]:
        if words != ["CONFIG", "REWRITE"]:  # these were started without a file
            everyone = [*engine.members, *engine.sentinels]
            next(one for one in everyone if one.port == int(port)).call(*words)
    cured = audit(engine.url)
    assert "quorum" not in sentences(cured)
    assert "snapshots" not in sentences(cured)

    third.kill()
    assert "no answer" in " ".join(lines(audit(engine.url), f"sentinel 127.0.0.1:{third.port}"))
    second.kill()
    lost = audit(engine.url)
    assert "nobody takes the place of a primary" in sentences(lost)
    assert f"127.0.0.1:{first.port}: names" in " ".join(lost.topology)
    for one in replicas:
        one.kill()
    wait_until(lambda: primary.replication()["connected_slaves"] == "0")
    assert "no replica follows" in about(audit(engine.url), Hazard.FAILOVER)
    primary.kill()
    dead = audit(engine.url)
    assert (dead.exit_code, dead.sound[Hazard.FAILOVER]) == (1, Soundness.UNKNOWN)
    assert f"127.0.0.1:{first.port}: names" in " ".join(dead.topology), (
        "its sentinel is still asked"
    )


@pytest.mark.parametrize(
    ("named", "quorum", "words", "severity"),
    [
        (("x", "x", "y"), 2, "name different primaries", Severity.CRITICAL),
        (("x", "x", "x"), 3, "every sentinel must call", Severity.WARNING),
        (("x", "x"), 2, "rest is no majority", Severity.WARNING),
        (("x", "x", "x"), 2, "", None),
    ],
)
def test_what_sentinels_say_of_a_failover(
    named: tuple[str, ...], quorum: int, words: str, severity: Severity | None
):
    places = SENTINEL_PORTS[: len(named)]
    views = [
        Sentinel(place, primary, 1, quorum, "master", tuple({*places} - {place}), 2)
        for place, primary in zip(places, named, strict=True)
    ]
    found = of_sentinels(Sentinels("mymaster", len(named), tuple(views)), replicas=True).findings
    assert [one.severity for one in found[:1]] == ([severity] if severity else [])
    assert words in "".join(one.why for one in found)


def test_a_cluster_says_which_shard_nobody_could_take_over(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(topology="cluster")
    found = audit(engine.url)
    assert len(lines(found, "replica")) == len(lines(found, "primary")) == 3
    assert "cluster: state ok, 3 primaries, 2 must agree on a failover" in found.topology
    assert "nobody can take its place" not in sentences(found)
    replica = next(one for one in engine.members if not one.is_primary())
    orphan = int(replica.replication()["master_port"])
    replica.kill()

    def is_told() -> bool:
        return f"without a replica: 127.0.0.1:{orphan}" in about(audit(engine.url), Hazard.FAILOVER)

    wait_until(is_told, within_s=60)
    gone = next(one for one in engine.members if one.port == orphan)
    gone.kill()  # its slots are nobody's from now on, and it may be the one that is asked first
    found = audit(engine.url)
    assert f"127.0.0.1:{orphan}" in " ".join((*found.unseen, found.where))
    assert len(lines(found, "replica")) == 2, "what is left is still seen"


def test_standbys_that_are_promoted_by_hand(postgres_engine_factory: EngineFactory):
    engine = postgres_engine_factory(topology="standby", partitions=True)
    primary = engine.primary()
    sync, other = [one for one in engine.members if one is not primary]
    found = audit(engine.url)
    assert f"member 127.0.0.1:{primary.port}: primary on timeline 1" in found.topology
    assert f"member 127.0.0.1:{sync.port}: standby on timeline 1" in found.topology
    [now] = lines(found, "a failover now")
    assert now.endswith(f"loses nothing that was acknowledged, if member_{sync.port} is promoted")
    assert "Patroni" not in " ".join(found.topology)
    assert found.sound[Hazard.FAILOVER] is SOUND
    assert found.ack_durability is Durability.REPLICA
    assert f"asynchronous: member_{other.port}" in sentences(found)
    assert "only synchronous one" in sentences(found)
    assert "1 server in the URL" not in sentences(found)
    assert "1 server in the URL" in sentences(audit(primary.url))
    _seen_by_others(engine, primary, other)

    primary.query("ALTER SYSTEM SET synchronous_commit = remote_write")
    primary.query("SELECT pg_reload_conf()")
    [now] = lines(audit(engine.url), "a failover now")
    assert "received and not synced is lost" in now
    primary.query("ALTER SYSTEM RESET synchronous_commit")
    names = "synchronous_standby_names"
    primary.query(f"ALTER SYSTEM SET {names} = ''")
    primary.query("SELECT pg_reload_conf()")
    weak = audit(engine.url)
    assert weak.sound[Hazard.FAILOVER] is UNSOUND
    [now] = lines(weak, "a failover now")
    assert "loses the last acknowledged appends" in now
    primary.query(f"ALTER SYSTEM SET {names} = 'somebody_else'")
    primary.query("SELECT pg_reload_conf()")
    hanging = audit(engine.url)
    assert "every commit waits for ever" in sentences(hanging)
    [now] = lines(hanging, "a failover now")
    assert "now every commit waits" in now
    primary.query(f"ALTER SYSTEM SET {names} = ''")
    primary.query("SELECT pg_reload_conf()")

    engine.partition(primary)
    two = audit(engine.url)
    assert two.findings[0].severity is Severity.CRITICAL
    assert f"Stop 127.0.0.1:{primary.port} now" in about(two, Hazard.FAILOVER)
    heir = engine.primary()
    assert two.where.startswith(f"127.0.0.1:{heir.port}/"), "the later timeline was looked at"
    engine.heal()
    primary.kill()
    assert f"member 127.0.0.1:{primary.port}: no answer" in audit(engine.url).topology
    heir.kill()
    left = audit(engine.url)
    assert "no write is taken until a server is promoted" in sentences(left)
    assert "Give the primary's URL" not in sentences(left)
    assert left.sound[Hazard.FAILOVER] is not SOUND


def _seen_by_others(engine: Any, primary: Any, other: Any) -> None:
    """A URL with one server twice, and a role that may not see standbys: it gets no promise."""
    twice = audit(engine.url.replace(f":{other.port}", f":{primary.port}"))
    assert "two servers of the URL" not in sentences(twice)
    password = "s3cret"
    with psycopg.connect(engine.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE app LOGIN PASSWORD '{password}'")
    url = engine.url.replace(f"postgres:{engine.members[0].password}@", f"app:{password}@")
    found = audit(url)
    [now] = lines(found, "a failover now")
    assert "this role may not see how far the standbys are" in now
    assert "follows nobody" not in " ".join(found.topology)
    assert password not in repr(found)


def test_a_patroni_gets_the_advice_that_it_understands(postgres_engine_factory: EngineFactory):
    engine = postgres_engine_factory(topology="patroni", settings={"synchronous_mode": "off"})
    weak = audit(engine.url)
    assert not [line for line in weak.topology if "no answer" in line]
    assert "run by Patroni" in lines(weak, "primary")[0]
    assert weak.sound[Hazard.FAILOVER] is UNSOUND
    [[tool, *words]] = commands(weak, "asynchronous")
    assert (tool, words[:2]) == ("patronictl", ["edit-config", "--set"])
    name, _, value = words[2].partition("=")
    _configure(engine.members[0], {name: json.loads(value)})
    wait_until(lambda: audit(engine.url).sound[Hazard.FAILOVER] is SOUND, within_s=60)
    [now] = lines(audit(engine.url), "a failover now")
    assert now.endswith("is promoted, which is what Patroni does")


def _configure(member: Any, settings: dict[str, Any]) -> None:
    """What `patronictl edit-config` does, by the same interface."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{member._rest.number}/config",
        data=json.dumps(settings).encode(),
        method="PATCH",
    )
    login = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    login.add_password(None, request.full_url, "holdfast", member.password)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPBasicAuthHandler(login)
    )
    opener.open(request, timeout=30).close()
