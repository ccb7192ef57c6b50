"""A disk that fails: fsync that does not sync, reads that cannot be done, and one that is slow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import VerifyError
from holdfast.model import Durability
from holdfast.verify import shims
from holdfast.verify.engines import Engine, Killable, Restartable
from holdfast.verify.faults.faulty import FaultyDisk
from holdfast.verify.judge import Verdict
from holdfast.verify.power.shim import ShimSupply
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.outage import Outages, met_by
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess

CLIENTS: Final = 2
MET_WITHIN_S: Final = 4.0
"""A client that hangs instead of raising is not waited for."""
SLOW_S: Final = 0.02
SLOW_APPENDS: Final = 10


class _DiskFault(Scenario):
    """What all need: the libraries, and an engine of their own on a disk that obeys us."""

    fault = "disk"
    apart = True
    libraries: tuple[str, ...] = ("disk",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine of ours, and the libraries that stand before its disk."""
        try:
            for name in self.libraries:
                shims.library(name)
        except VerifyError as error:
            return str(error)
        return context.why_no_own_engine()


class FailedSync(_DiskFault):
    """The disk says of every fsync that it failed: then no ack may say that it is on the disk.

    Not even later: what a failed fsync should have synced is lost, and another that works does
    not bring it back. In the end the power is cut, to see what really is there.
    """

    name = "failed-sync"
    about = "the disk refuses every fsync: nothing may be acknowledged; then it is slow"
    tests = ("durable", "loud")
    survived = Durability.DISK
    libraries = ("disk", "power")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """An ack that names no level claims DISK; one that names less does not wait for it."""
        level = context.about.get("level")
        if level is not None and Durability[level] < Durability.DISK:
            return f"its acks promise {level} only, and do not wait for the disk"
        return super().reason_not(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """Fail until every client has met it, heal, be slow for a while, cut the power."""
        outages = Outages(self.name)
        # No keys: a retry that is answered from what was stored before needs no fsync.
        shape = context.shape(self.name, keyed=False, forgets=False)
        lies: list[Finding] = []
        with ShimSupply() as supply, FaultyDisk() as disk:
            instruments = [disk, *supply.instruments]
            engine, spec = context.own_engine(instruments=instruments, storage=supply.directory)
            with engine, context.clients(self, spec=spec) as clients:
                clients.instruments = instruments if spec.embedded else []
                disk.aim(supply.directory)
                supply.settle()
                working = clients.start(context.at_once(CLIENTS), shape=shape)
                for client in working:
                    client.go()
                clients.until_acknowledged(context.amount(30))
                if working:
                    lies += self._refuse(context, clients, engine, supply, working, outages)
                    self._slow(context, clients, disk)
                    self._cut(context, clients, engine, supply)
                outcome = context.conclude(self, clients, "failed and slow syncs, then a power cut")
                outcome.findings += [*outages.findings(clients), *lies]
                return outcome

    def _refuse(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        engine: Engine,
        supply: ShimSupply,
        working: list[ClientProcess],
        outages: Outages,
    ) -> Iterator[Finding]:
        began_ns = clients.note_fault("disk")
        supply.fail_syncs()
        armed_ns = time.monotonic_ns()
        met = met_by(working)
        clients.until(lambda: met() is not None, within_s=MET_WITHIN_S)
        in_flight, healed_ns = len(clients.in_flight()), time.monotonic_ns()
        evidence = supply.heal()
        context.landed("disk", evidence.seen, in_flight=in_flight)
        _recover(clients, engine, working, outages, began_ns)
        yield from _lies(self, clients.raw_events(), armed_ns, healed_ns, evidence.seen)

    def _slow(self, context: ScenarioContext, clients: ClientPool, disk: FaultyDisk) -> None:
        disk.slow(SLOW_S)
        clients.until(lambda: disk.was_met)  # acks from before may still be on their way to us
        clients.until_acknowledged(SLOW_APPENDS)
        disk.heal()
        context.landed("disk", disk.landed().seen)

    def _cut(
        self, context: ScenarioContext, clients: ClientPool, engine: Engine, supply: ShimSupply
    ) -> None:
        in_flight = len(clients.in_flight())
        if isinstance(engine, Killable):
            evidence = supply.cut(engine.kill)
            clients.note_fault("disk")
            engine.start()
        else:
            evidence = supply.cut(lambda: [clients.kill(c) for c in clients.processes if c.alive])
        context.landed("disk", evidence.seen, in_flight=in_flight)


class FailedRead(_DiskFault):
    """What was stored cannot be read for a while: an error, and never an empty memory."""

    name = "failed-read"
    about = "the disk cannot be read for a while: that is an error, not an empty memory"
    tests = ("loud",)

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that reads its disk while it serves."""
        engine = context.spec.engine
        if engine is not None and engine.kind not in ("sqlite", "postgres"):
            return f"{engine.kind} reads its disk only when it starts"
        return super().reason_not(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """Some write; others, who have nothing in memory yet, come while nothing can be read."""
        outages = Outages(self.name, silent="its disk could not be read")
        shape = context.shape(self.name, keyed=False, forgets=False)
        with FaultyDisk() as disk:
            engine, spec = context.own_engine(instruments=[disk], storage="disk")
            with engine, context.clients(self, spec=spec) as clients:
                for client in clients.start(shape=shape):
                    client.go()
                clients.until_acknowledged(context.amount(20))
                clients.stop()
                if isinstance(engine, Restartable):
                    engine.restart()  # so that its memory is empty, too
                clients.instruments = [disk] if spec.embedded else []
                late = clients.start(context.at_once(CLIENTS), shape=shape, lazy=True)
                self._refuse(context, clients, engine, disk, late, outages)
                clients.instruments = []
                outcome = context.conclude(self, clients, "reads that failed")
                outcome.findings += outages.findings(clients)
                return outcome

    def _refuse(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        engine: Engine,
        disk: FaultyDisk,
        late: list[ClientProcess],
        outages: Outages,
    ) -> None:
        if engine.data_dir is None:
            raise VerifyError(f"disk: {engine.kind} has no directory of ours")
        disk.aim(engine.data_dir)
        began_ns = clients.note_fault("disk")
        disk.fail_reads()
        met = met_by(late)
        for client in late:
            client.go()
        clients.until(lambda: met() is not None, within_s=MET_WITHIN_S)
        in_flight = len(clients.in_flight())
        disk.heal()
        context.landed("disk", disk.landed().seen, in_flight=in_flight)
        _recover(clients, engine, late, outages, began_ns)


def _recover(
    clients: ClientPool,
    engine: Engine,
    working: Sequence[ClientProcess],
    outages: Outages,
    began_ns: int,
) -> None:
    """Wait until every client works again, and start an engine that ended meanwhile.

    One that ends rather than acknowledge what it could not sync does right; it may take a moment.
    """
    healed_ns = time.monotonic_ns()

    def works() -> bool:
        if getattr(engine, "pid", 0) is None:
            engine.start()
        return all(client.works_since(healed_ns) for client in working)

    clients.until(works, within_s=clients.bounds.recover_s)
    outages.over(clients, working, began_ns, healed_ns)


def _lies(
    scenario: Scenario,
    events: Iterable[Mapping[str, Any]],
    armed_ns: int,
    healed_ns: int,
    seen: str,
) -> Iterator[Finding]:
    """Appends that were begun and acknowledged while every fsync failed."""
    asked: dict[int, Mapping[str, Any]] = {}
    false = []
    for event in events:
        if event["type"] == "invoke":
            asked[event["op"]] = event
        elif event["type"] == "ok" and asked[event["op"]]["f"] == "append":
            begun_ns = asked[event["op"]]["time_ns"]
            false += [event["op"]] if armed_ns < begun_ns and event["time_ns"] < healed_ns else []
    evidence = {"acknowledged_without_disk": len(false), "seen": seen}
    if false:
        words = (
            f"{len(false)} appends were acknowledged while the disk refused every fsync ({seen})"
        )
        yield Finding("durable", Verdict.BROKEN, words, scenario.name, evidence)
