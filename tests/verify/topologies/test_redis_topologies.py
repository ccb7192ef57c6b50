"""Several Redis engines that are one service: each change of the primary is proven."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.errors import UsageError
from holdfast.model import Durability
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import Reshardable, Topology, start_engine
from holdfast.verify.judge import Verdict
from holdfast.verify.proof import await_true

TOPOLOGIES = ("sentinel", "cluster")
STORES = "tests.verify.topologies.sentinel_stores"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_another_member_takes_the_place_of_a_dead_primary_and_nothing_stays_behind(
    redis_engine_factory: EngineFactory, topology: str
) -> None:
    engine = redis_engine_factory(topology=topology)
    assert [isinstance(engine, one) for one in (Topology, Reshardable)] == [
        True,
        topology == "cluster",
    ]
    old, homes = engine.primary(), [member.data_dir for member in engine.members]
    lost = engine.failover()
    assert old.pid is None
    assert lost.facts["before"] == old.port != lost.facts["after"]
    assert lost.facts["epoch_after"] > lost.facts["epoch_before"]
    assert lost.facts["seconds"] > 0.3  # nobody is called dead at once
    new = next(one for one in engine.members if one.port == lost.facts["after"])
    assert new.replication()["role"] == "master"
    engine.rejoin()
    assert old.replication()["role"] == "slave"
    changed = engine.switchover()
    assert changed.facts["before"] != changed.facts["after"]
    pids = [process.pid for process in engine._processes()]
    engine.close()
    assert not any(home.exists() for home in homes)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110


def test_a_replica_that_is_still_being_sent_the_data_is_connected_and_not_in_step(
    redis_engine_factory: EngineFactory,
) -> None:
    engine = redis_engine_factory(topology="sentinel")
    primary = engine.primary()
    assert primary.followers() == 2
    replica = next(one for one in engine.members if one is not primary)
    primary.call("CONFIG", "SET", "repl-diskless-sync-delay", "600")
    primary.call("CONFIG", "SET", "repl-backlog-size", "16384")
    replica.kill()
    primary.call("SET", "more than the backlog holds", "x" * 100_000)
    replica.follows = primary
    replica.start()
    assert await_true(lambda: primary.replication()["connected_slaves"] == "2", 60)
    assert primary.followers() == 1
    assert "the primary misses a replica" in list(engine._missing())
    primary.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    engine.rejoin()
    assert primary.followers() == 2


@pytest.mark.parametrize(
    ("topology", "way"),
    [("sentinel", "both"), ("cluster", "both"), ("sentinel", "in"), ("cluster", "out")],
)
def test_a_primary_that_is_cut_off_is_replaced_and_follows_after_it_healed(
    redis_engine_factory: EngineFactory, topology: str, way: str
) -> None:
    engine = redis_engine_factory(topology=topology, partitions=True)
    old = engine.primary()
    cut = engine.partition(old, way=way)
    assert cut.facts["connections"] > 0
    assert cut.facts["way"] == way
    assert await_true(lambda: _primary(engine) not in (None, old), 60, 0.02)
    if way != "out":  # it does not know; one that hears the others may
        assert old.replication()["role"] == "master"
    engine.heal()
    engine.rejoin()
    assert old.replication()["role"] == "slave"


def _primary(engine: Any) -> Any:
    try:
        return engine.primary()
    except Exception:  # noqa: BLE001 - they agree on none yet
        return None


def test_slots_move_with_what_is_in_them(redis_engine_factory: EngineFactory) -> None:
    engine = redis_engine_factory(topology="cluster")
    source = engine.primary()
    for number in range(200):
        key = f"key {number}"
        slot = source.call("CLUSTER", "KEYSLOT", key)
        engine.owner(slot).call("SET", key, "here")
    before = source.call("DBSIZE")
    moved = engine.reshard(slots=10)
    assert moved.facts["slots"] == 10
    assert source.call("DBSIZE") == before - moved.facts["keys"]
    assert sum(one.call("DBSIZE") for one in engine.members if one.is_primary()) == 200


def test_what_a_topology_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="sentinel, cluster"):
        start_engine("redis", topology="ring")
    with pytest.raises(UsageError, match="there are: none"):
        start_engine("sqlite", topology="sentinel")
    with pytest.raises(UsageError, match="provider local"):
        start_engine("redis", topology="sentinel", provider="docker")
    with pytest.raises(UsageError, match="one engine"):
        start_engine("redis", topology="sentinel", clock=True)
    with (
        start_engine("redis", topology="sentinel") as engine,
        pytest.raises(UsageError, match="partitions=True"),
    ):
        engine.partition(engine.primary())  # type: ignore[attr-defined]


def test_the_command_shows_what_can_be_started() -> None:
    shown = CliRunner().invoke(main, ["engines", "--provider", "local", "--json", "-"])
    found = {one["kind"]: one["version"] for one in json.loads(shown.output)}
    assert found["redis-sentinel"] == found["redis-cluster"] is not None
    assert {"valkey-sentinel", "valkey-cluster"} <= found.keys()


def test_a_check_names_its_topology_and_holds_acks_to_a_replica() -> None:
    options = CheckOptions(target="redis", topology="sentinel", seed=1)
    assert options.required is Durability.REPLICA
    assert "--topology sentinel" in options.command
    assert (
        CheckOptions(target="redis", topology="sentinel", require="DISK").required
        is Durability.DISK
    )
    with pytest.raises(UsageError, match="--topology"):
        check(CheckOptions(target="sqlite:///here.db", topology="sentinel"), _Silent())


class _Silent:
    def say(self, words: str) -> None:
        """Nobody listens."""

    def done(self, scenario: str, verdict: str) -> None:
        """Nobody listens."""


def test_our_store_is_kept_where_its_primary_is_handed_over() -> None:
    """With `WAIT 1` it lost a twentieth of what it had acknowledged."""
    faults = ("failover", "switchover")
    options = CheckOptions(
        target="redis", topology="sentinel", seed=1, faults=faults, promises=("durable",), time_s=6
    )
    result = check(options, _Silent())
    assert result.promises["durable"].verdict is Verdict.KEPT, result.promises["durable"].because
    assert result.tested_to == "REPLICA"
    assert result.counts["lost"] == 0
    assert all(result.faults[name].landed for name in faults)


def test_a_store_that_believes_a_primary_which_slept_is_caught() -> None:
    """It wakes up deposed, carries out what it was sent meanwhile, and answers as ever."""
    options = CheckOptions(
        target=f"{STORES}:acks_of_the_primary", engine="redis", topology="sentinel", seed=1,
        faults=("pause",), promises=("durable",), time_s=6,
    )  # fmt: skip
    result = check(options, _Silent())
    assert result.faults["pause"].landed
    durable = result.promises["durable"]
    assert durable.verdict is Verdict.BROKEN, durable.because
    assert result.counts["lost"] > 0


def test_a_store_that_hides_a_failover_is_still_seen_to_tell_of_errors() -> None:
    """Ours on PostgreSQL repeats what has a key: `loud` was unknown, after a wait for an error."""
    options = CheckOptions(
        target="postgres", topology="standby", seed=1, faults=("failover",), promises=("loud",), time_s=6
    )  # fmt: skip
    loud = check(options, _Silent()).promises["loud"]
    assert loud.verdict is Verdict.KEPT, loud.because
    assert loud.evidence["scenarios"]["failover"]["errors"] > 0


def test_records_that_no_driver_of_one_engine_reaches_are_left_alone() -> None:
    """The check damages none of several engines: what it knows of `faithful` stays."""
    options = CheckOptions(
        target="redis", topology="sentinel", seed=1, faults=(), promises=("faithful",), time_s=6
    )
    faithful = check(options, _Silent()).promises["faithful"]
    assert faithful.verdict is Verdict.KEPT, faithful.because
