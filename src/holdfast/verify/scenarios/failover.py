"""Faults upon one of several engines: its primary is lost, handed over, cut off; slots move."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, cast

from holdfast.errors import FaultNotProven
from holdfast.model import Durability
from holdfast.verify.engines.topologies.patroni_member import takes_lead_back
from holdfast.verify.engines.topologies.protocol import PromotedByHand, Reshardable, Topology
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.scenarios.base import Outcome, ScenarioContext
from holdfast.verify.scenarios.engine_faults import Away, EngineFault
from holdfast.verify.workload.client_pool import ClientPool

ONE_ENGINE: Final = "there is one engine only: --topology starts several"
LEAD_TAKEN_BACK: Final = (
    "a primary that sleeps past its lease takes the lead back before Patroni 3.0.4, and what was "
    "acknowledged meanwhile is gone"
)
CHANGE_TIMEOUT_S: Final = 60.0
MORE: Final = 10
"""So many appends are acknowledged by the new primary before the old one comes back."""


class TopologyFault(EngineFault):
    """Clients at work on several engines while one of them is struck."""

    power: type = Topology
    tests: tuple[str, ...] = ("durable", "atomic")
    verb = "fail over"

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs several engines, and acks that are to survive the loss of one."""
        if not isinstance(context.engine, self.power):
            return ONE_ENGINE
        if context.require < Durability.REPLICA:
            return f"--require {context.require.name}: a failover may lose what was acknowledged"
        return None

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """Change the primary; let clients go on there, and then bring the old one back."""
        engine = topology_of(context)
        began_ns = time.monotonic_ns()
        clients.watch(0)
        in_flight = len(clients.in_flight())
        evidence = self.change(engine)
        ended_ns = time.monotonic_ns()
        self.after(clients, met)
        engine.rejoin()
        return Away(began_ns, ended_ns, evidence, in_flight)

    def change(self, engine: Topology) -> Evidence:
        """What is done; returns when it is over."""
        raise NotImplementedError

    def after(self, clients: ClientPool, met: Callable[[], bool]) -> None:
        """Before the old primary comes back."""
        del met
        clients.until_acknowledged(MORE)


class Failover(TopologyFault):
    """SIGKILL the primary under load; another member takes its place."""

    name = "failover"
    rank = 5
    about = "the primary is ended by SIGKILL under load, and another member takes its place"
    fault = "failover"
    tests = ("durable", "atomic", "loud")
    kept = "the primary lost under load"
    rounds = 3
    survived = Durability.REPLICA
    # With keys a store may wait for the new primary and repeat all: no client would meet an error.
    keyed = False

    def change(self, engine: Topology) -> Evidence:
        """Who is primary afterwards is decided by the members."""
        return engine.failover()

    def after(self, clients: ClientPool, met: Callable[[], bool]) -> None:
        """Clients must have met it, too."""
        super().after(clients, met)
        clients.until(met)


class Switchover(TopologyFault):
    """An operator makes another member primary, with the old one alive."""

    name = "switchover"
    about = "another member is made primary under load, as for maintenance"
    fault = "switchover"
    kept = "the primary changed under load"

    def change(self, engine: Topology) -> Evidence:
        """The old primary lives, and may not know at once."""
        return engine.switchover()


class Deposed(TopologyFault):
    """The primary is out of reach until another has taken its place, and then comes back."""

    rounds = 1

    def change(self, engine: Topology) -> Evidence:
        """Hold it until another is primary, and let it go on: it does not know of that."""
        old = engine.primary()
        held = self.hold(engine, old)
        began = time.monotonic()
        try:
            if not await_true(lambda: _is_another(engine, old), CHANGE_TIMEOUT_S, 0.02):
                raise FaultNotProven(f"{self.fault}: no other member became primary")
            seconds = time.monotonic() - began
            new = engine.primary()
        finally:
            back = self.release(engine, old)
        facts = {"before": old.port, "after": new.port, "seconds": round(seconds, 3)}
        words = (
            f"{held.seen}; primary was {old.port}, is {new.port} after {seconds:.2f} s; {back.seen}"
        )
        return Evidence(str(self.fault), words, {**held.facts, **back.facts, **facts})

    def hold(self, engine: Topology, old: Any) -> Evidence:
        """Keep the primary from the others."""
        raise NotImplementedError

    def release(self, engine: Topology, old: Any) -> Evidence:
        """Let it go on."""
        raise NotImplementedError


class Partition(Deposed):
    """The primary is cut off from the other members, and clients still reach it."""

    name = "partition"
    about = "the primary is cut off from the other members, while clients still reach it"
    fault = "partition"
    kept = "the primary cut off under load"
    way = "both"

    def run(self, context: ScenarioContext) -> Outcome:
        """On engines of its own, between which a network of ours can be cut."""
        like = topology_of(context)
        engine, spec = context.own_engine(topology=like.topology, partitions=True)
        with engine:
            return super().run(replace(context, engine=engine, spec=spec))

    def hold(self, engine: Topology, old: Any) -> Evidence:
        """Between it and the other members."""
        return engine.partition(old, way=self.way)

    def release(self, engine: Topology, old: Any) -> Evidence:
        """All bytes pass."""
        del old
        return engine.heal()


class PartitionOneWay(Partition):
    """The primary hears the other members, and they hear nothing of it; clients reach it."""

    name = "partition-one-way"
    about = "the primary hears the other members and is not heard by them, while clients reach it"
    kept = "the primary not heard under load"
    way = "out"

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Processes of PostgreSQL that stand still neither say nor hear anything."""
        if isinstance(context.engine, Topology) and context.engine.kind == "postgres":
            return "members of postgres are cut off both ways only"
        return super().reason_not(context)


class PausePrimary(Deposed):
    """SIGSTOP the primary: it wakes up as one, with what it was sent in the meantime."""

    name = "pause-primary"
    about = "the primary stands still until another has taken its place, and wakes up"
    fault = "pause"
    kept = "the primary held under load until it was deposed"

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Not with a Patroni that loses acknowledged writes by itself: no store can help that."""
        is_patroni = isinstance(context.engine, Topology) and context.engine.topology == "patroni"
        return LEAD_TAKEN_BACK if is_patroni and takes_lead_back() else super().reason_not(context)

    def hold(self, engine: Topology, old: Any) -> Evidence:
        """All its processes; where no coordinator does it, another member is promoted by hand."""
        seen: Evidence = old.pause()
        if isinstance(engine, PromotedByHand):
            engine.promote(old)
        return seen

    def release(self, engine: Topology, old: Any) -> Evidence:
        """It answers again."""
        del engine
        back: Evidence = old.resume()
        return back


class Reshard(TopologyFault):
    """Slots of a cluster move from one primary to another under load."""

    name = "reshard"
    about = "sessions move from one primary to another under load"
    fault = "reshard"
    kept = "sessions moved under load"
    power = Reshardable
    rounds = 1

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs shards."""
        if isinstance(context.engine, Topology) and not isinstance(context.engine, Reshardable):
            return f"a {context.engine.topology} has no slots to move"
        return super().reason_not(context)

    def change(self, engine: Topology) -> Evidence:
        """Slots that have data."""
        return cast("Reshardable", engine).reshard()


def topology_of(context: ScenarioContext) -> Topology:
    """The several engines of the target; `reason_not` has looked."""
    return cast("Topology", context.engine)


def _is_another(engine: Topology, old: Any) -> bool:
    try:
        return engine.primary() is not old
    except FaultNotProven:
        return False
