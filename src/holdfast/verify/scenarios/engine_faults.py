"""Faults upon the engine: SIGKILL, pause, restart, a lost answer, no connection left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import VerifyError
from holdfast.model import Durability
from holdfast.verify.engines.protocol import Engine, Killable, Pausable, Restartable
from holdfast.verify.engines.topologies.protocol import Topology
from holdfast.verify.faults.engine import kill, paused
from holdfast.verify.faults.pressure import ConnectionsHeld
from holdfast.verify.faults.proxy import Proxy
from holdfast.verify.judge import Verdict
from holdfast.verify.proof import Evidence
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import SEVERAL, Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.outage import GONE, Outages
from holdfast.verify.scenarios.reach import prove_connected
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess

CLIENTS: Final = 3
ROUNDS: Final = 2
PAUSED_S: Final = 0.7
PATIENCE_S: Final = 0.5
"""Shorter than a pause, so that requests are cancelled whose answer is still to come."""
PAUSED_S_MAX: Final = 6.0
"""The last time until a client gives up: most wait for 5 s at most. What it does with the
connection then, on which an answer is still to come, is the question."""
AWAY_S: Final = 3.0
"""So long the engine stays dead at most, once its clients have met that."""
TRIES_MIN: Final = 20
"""So often each client tries while the engine is dead, if its store does not make it wait."""
CONNECTIONS_MAX: Final = 200
NO_SERVER: Final = "there is no server: the clients are the engine"
NO_NETWORK: Final = "there is no network between the store and its engine"
NOT_MANAGED: Final = "holdfast does not manage this engine, so it cannot {} it"


class Away(NamedTuple):
    """An engine that was away: since when, until when nothing could bring it back, and the proof."""

    began_ns: int
    ended_ns: int
    """Before its start: it answers before its starter knows that."""
    evidence: Evidence
    in_flight: int


class EngineFault(Scenario):
    """Clients at work, the engine goes away, comes back, and everything is read again."""

    fault: str = ""
    tests: tuple[str, ...] = ("durable", "atomic", "loud")
    power: type = Engine
    verb = ""
    kept = ""
    gone = False
    """Nothing can answer while it is away."""
    rounds = ROUNDS
    clients = CLIENTS
    keyed: bool = True
    """Whether clients use the keys that the target takes; without one a store repeats nothing."""
    patience_s: float | None = None
    """After so long a request to an async store is cancelled, and its caller asks for something else."""

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine of ours that has the power."""
        if context.spec.embedded:
            return NO_SERVER
        if isinstance(context.engine, self.power):
            return None
        several = isinstance(context.engine, Topology)
        return SEVERAL if several else NOT_MANAGED.format(self.verb)

    def run(self, context: ScenarioContext) -> Outcome:
        """Several rounds, then the verdict."""
        outages = Outages(self.name, silent=GONE if self.gone else "")
        with context.clients(self) as clients:
            at_once = context.at_once(self.clients)
            shape = context.shape(self.name, **({} if self.keyed else {"keyed": False}))
            working = context.start_mixed(clients, at_once, shape=shape, patience_s=self.patience_s)
            for client in working:
                client.go()
            for _ in range(self.rounds if working else 0):
                clients.until_acknowledged(context.amount(40))
                prove_connected(self.name, context, clients)
                self._round(context, clients, working, outages)
                if outages.stuck:
                    break
            outcome = context.conclude(self, clients, self.kept)
            outcome.findings += self._heard(outages, clients)
            return outcome

    def _heard(self, outages: Outages, clients: ClientPool) -> list[Finding]:
        """A pause that nobody noticed says nothing about errors; a false answer always counts."""
        found = outages.findings(clients)
        return [f for f in found if "loud" in self.tests or f.verdict is Verdict.BROKEN]

    def _round(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        working: list[ClientProcess],
        outages: Outages,
    ) -> None:
        errors = sum(client.errors for client in working)

        def met() -> bool:
            return sum(client.errors for client in working) > errors

        outages.struck_ns = min(outages.struck_ns, clients.note_fault(self.fault))
        away = self.strike(context, clients, met)
        clients.note_fault(f"{self.fault} over")
        context.landed(self.fault, away.evidence.seen, in_flight=away.in_flight)
        outages.over(clients, working, away.began_ns, away.ended_ns)

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """Cause the fault and undo it: when it was away, the proof, and what it caught."""
        raise NotImplementedError


class KillEngine(EngineFault):
    """SIGKILL the engine under load and start it again on the same data."""

    name = "kill-engine"
    rank = 4
    about = "the engine is ended by SIGKILL under load, and started again"
    fault = "kill"
    power = Killable
    verb = "kill"
    kept = "the engine killed under load"
    gone = True
    survived = Durability.PROCESS

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Where nothing is asked of an ack, a SIGKILL may lose it."""
        if context.require is Durability.MEMORY:
            return "--require MEMORY: a SIGKILL may lose what was acknowledged"
        return super().reason_not(context)

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """SIGKILL, wait until a client has met it, start."""
        engine = engine_of(context)
        evidence = kill(engine)
        began_ns = time.monotonic_ns()
        clients.watch(0)
        in_flight = len(clients.in_flight())
        # Long enough for every client to write and to read, were it not for those that wait.
        clients.until_tried(clients.processes, TRIES_MIN, within_s=AWAY_S)
        clients.until(met)
        ended_ns = time.monotonic_ns()
        engine.start()
        return Away(began_ns, ended_ns, evidence, in_flight)


class PauseEngine(EngineFault):
    """SIGSTOP the engine: requests wait, or are given up, and may be done late."""

    name = "pause-engine"
    about = "the engine is stopped in mid-breath, and goes on later"
    fault = "pause"
    tests = ("durable", "atomic")
    power = Pausable
    verb = "pause"
    kept = "the engine paused under load"
    patience_s = PATIENCE_S

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """Pause it for a moment, and the last time until a client has given up."""
        last = sum(fault.name == self.fault for fault in clients.faults) == self.rounds
        with paused(engine_of(context)) as evidence:
            began_ns = time.monotonic_ns()
            clients.watch(PAUSED_S)
            if last:
                until_s = time.monotonic() + PAUSED_S_MAX - PAUSED_S

                def is_over() -> bool:
                    clients.watch(0)
                    return met() or time.monotonic() > until_s - PAUSED_S_MAX / 2

                context.meanwhile(is_over)
                clients.until(met, within_s=max(until_s - time.monotonic(), 0.0))
            in_flight = len(clients.in_flight())
        return Away(began_ns, time.monotonic_ns(), evidence, in_flight)


class RestartEngine(EngineFault):
    """Stop the engine cleanly under load and start it again."""

    name = "restart-engine"
    about = "the engine is restarted under load"
    fault = "restart"
    tests = ("durable", "atomic")
    power = Restartable
    verb = "restart"
    kept = "the engine restarted under load"
    clients = 2
    rounds = 1

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """As an upgrade does."""
        del met
        engine = engine_of(context)
        if not isinstance(engine, Restartable):
            raise VerifyError(NOT_MANAGED.format(self.verb))
        began_ns = time.monotonic_ns()
        clients.watch(0)
        in_flight = len(clients.in_flight())
        evidence = engine.restart()
        return Away(began_ns, time.monotonic_ns(), evidence, in_flight)


class NetworkCut(Scenario):
    """Every connection is cut under load and no new one is accepted, until the network heals."""

    name = "network-cut"
    about = "the network between store and engine is cut under load, and heals"
    fault = "network"
    tests = ("durable", "atomic", "loud")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that is reached by TCP."""
        return NO_NETWORK if context.spec.embedded or context.engine is None else None

    def run(self, context: ScenarioContext) -> Outcome:
        """Clients reach the engine through a proxy, which cuts them off."""
        outages = Outages(self.name, silent=GONE)
        with Proxy(engine_of(context).url) as proxy, context.clients(self) as clients:
            shape, through = context.shape(self.name), context.spec.at(proxy.url)
            at_once = context.at_once(CLIENTS)
            working = context.start_mixed(clients, at_once, shape=shape, spec=through)
            for client in working:
                client.go()
            for _ in range(ROUNDS if working else 0):
                clients.until_acknowledged(context.amount(40))
                self._cut(context, clients, proxy, working, outages)
                if outages.stuck:
                    break
            outcome = context.conclude(self, clients, "the network cut under load")
            outcome.findings += outages.findings(clients)
            return outcome

    def _cut(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        proxy: Proxy,
        working: list[ClientProcess],
        outages: Outages,
    ) -> None:
        outages.struck_ns = min(outages.struck_ns, clients.note_fault(self.fault))
        proxy.refuse()
        evidence = proxy.cut()
        began_ns = time.monotonic_ns()
        clients.until_tried(working, TRIES_MIN, within_s=AWAY_S)
        ended_ns = time.monotonic_ns()
        proxy.heal()
        context.landed(self.fault, evidence.seen, in_flight=int(evidence.facts["in_flight"]))
        outages.over(clients, working, began_ns, ended_ns)


class NoConnections(Scenario):
    """Others hold every connection; a new client is turned away, and served later."""

    name = "no-connections"
    about = "others hold every connection that the engine allows"
    fault = "connections"
    tests = ("durable", "loud")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a server whose connections can be counted."""
        if context.engine is None or context.spec.embedded:
            return NO_SERVER
        if context.alone:
            return context.alone
        scheme = urlsplit(context.engine.url).scheme
        known = scheme in ("redis", "valkey", "postgres", "postgresql")
        return None if known else f"connections of {scheme} cannot be counted"

    def run(self, context: ScenarioContext) -> Outcome:
        """Some clients are connected before, others come while nothing is left."""
        outages = Outages(self.name)
        shape = context.shape(self.name)
        with context.clients(self) as clients:
            for client in clients.start(2, shape=shape):
                client.go()
            clients.until_acknowledged(context.amount(20))
            late = clients.start(2, shape=shape, lazy=True)
            if late:
                self._turn_away(context, clients, late, outages)
            outcome = context.conclude(self, clients, "no connection left")
            outcome.findings += outages.findings(clients)
            return outcome

    def _turn_away(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        late: list[ClientProcess],
        outages: Outages,
    ) -> None:
        fault = ConnectionsHeld(engine_of(context).url, connections_max=CONNECTIONS_MAX)
        evidence = fault.apply()
        began_ns = clients.note_fault(self.fault)
        try:
            for client in late:
                client.go()
            if not clients.until(lambda: all(client.errors for client in late)):
                clients.missed = "a client that came late was not turned away"
        finally:
            fault.release()
        context.landed(self.fault, evidence.seen, in_flight=len(clients.in_flight()))
        outages.over(clients, late, began_ns, time.monotonic_ns())


def engine_of(context: ScenarioContext) -> Engine:
    """The engine of the target; `VerifyError` where it has none."""
    if context.engine is None:
        raise VerifyError(NO_SERVER)
    return context.engine
