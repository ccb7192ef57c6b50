"""The disk is full, under the clients or under their engine, and then it has room again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.configs import without_replica
from holdfast.verify.engines.server import ServerEngine
from holdfast.verify.faults.disk_space import (
    DiskFault,
    FileSizeLimit,
    SmallDisk,
    disk_of,
    may_limit,
)
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.outage import Outages, met_by, swallowed
from holdfast.verify.spec import view_of
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess

CLIENTS: Final = 3
DISK_BYTES: Final = 256 * 1024 * 1024


class DiskFull(Scenario):
    """The processes may write no further byte, and then they may again."""

    name = "disk-full"
    rank = 5
    about = "the disk is full, and then it has room again"
    fault = "disk"
    tests = ("durable", "loud")
    clients = CLIENTS
    at_once = False
    """What was acknowledged is looked for while the disk is still full, not only later."""

    def reason_not(self, context: ScenarioContext) -> str | None:
        """A server writes by itself."""
        if context.spec.embedded:
            return None
        return EngineDiskFull().reason_not(context) or "the engine's disk is filled instead"

    def run(self, context: ScenarioContext) -> Outcome:
        """Fill, wait until every client has met it, release, wait until every one works again."""
        outages = Outages(self.name)
        with context.clients(self) as clients:
            at_once = context.at_once(self.clients)
            working = clients.start(at_once, shape=context.shape(self.name))
            for client in working:
                client.go()
            clients.until_acknowledged(context.amount(20))
            if working:
                self._fill(context, clients, working, outages)
            outcome = context.conclude(self, clients, "a full disk")
            outcome.findings += [*outages.findings(clients), *self._swallowed(clients, outages)]
            return outcome

    def _swallowed(self, clients: ClientPool, outages: Outages) -> Iterator[Finding]:
        """A store that says "done" of what the full disk refused has swallowed that error."""
        for span in outages.spans:
            gone = swallowed(list(clients.raw_events()), *span, at_once=self.at_once)
            if gone:
                words = (
                    f"{len(gone)} appends were acknowledged while the disk was full, and nothing "
                    "of them was ever there: the error was swallowed"
                )
                evidence = {"swallowed": len(gone)}
                yield Finding("loud", Verdict.BROKEN, words, self.name, evidence)

    def disk(self, context: ScenarioContext, working: list[ClientProcess]) -> DiskFault:
        """The disk to fill."""
        del context
        return FileSizeLimit([client.process.pid for client in working])

    def recover(
        self, context: ScenarioContext, clients: ClientPool, working: list[ClientProcess]
    ) -> None:
        """What an operator does once there is room: nothing."""

    def _fill(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        working: list[ClientProcess],
        outages: Outages,
    ) -> None:
        disk = self.disk(context, working)
        met = met_by(working)
        # Before it: while the disk is being filled and that is proven, clients meet it already.
        began_ns = clients.note_fault("disk")
        evidence = disk.fill()
        try:
            clients.until(lambda: met() is not None)
        finally:
            disk.release()
        if met():
            context.landed("disk", evidence.seen, in_flight=len(clients.in_flight()))
        else:
            clients.missed = "not every client met the full disk"
        ended_ns = time.monotonic_ns()
        self.recover(context, clients, working)
        outages.over(clients, working, began_ns, ended_ns)


class EngineDiskFull(DiskFull):
    """The engine may write no further: it refuses, or ends, and must not say that it was done."""

    name = "disk-full-engine"
    rank = Scenario.rank
    about = "the engine's disk is full under load, and then it has room again"
    clients = 2
    at_once = True

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a server of ours that writes before it answers."""
        if context.spec.embedded:
            return "the clients' disk is filled instead"
        engine = context.engine
        if not isinstance(engine, ServerEngine):
            return "holdfast does not manage this engine, so it cannot fill its disk"
        if engine.settings.get("appendonly") == "no":
            return "with `appendonly no` it answers without writing anything"
        return None

    def run(self, context: ScenarioContext) -> Outcome:
        """On the engine itself, or on one that has a small disk of its own."""
        with _on_a_disk(context) as there:
            return super().run(there)

    def disk(self, context: ScenarioContext, working: list[ClientProcess]) -> DiskFault:
        """That of its data directory."""
        del working
        return disk_of(_process(context).data_dir)

    def recover(
        self, context: ScenarioContext, clients: ClientPool, working: list[ClientProcess]
    ) -> None:
        """Start it again if it ended, as any service is: Redis does, where it syncs always."""
        engine, ended_ns = _process(context), time.monotonic_ns()

        def works() -> bool:
            engine.start()  # nothing happens where it runs
            return all(c.works_since(ended_ns) or not c.alive for c in working)

        clients.until(works, within_s=clients.bounds.recover_s)


def _process(context: ScenarioContext) -> ServerEngine:
    assert isinstance(context.engine, ServerEngine)  # noqa: S101 - reason_not looked
    return context.engine


@contextlib.contextmanager
def _on_a_disk(context: ScenarioContext) -> Iterator[ScenarioContext]:
    """This context, if we may limit its engine; otherwise one more such engine on a small disk.

    PostgreSQL does not run as root: where we are root it belongs to another user.
    """
    engine = _process(context)
    if engine.pid is not None and may_limit(engine.pid):
        yield context
        return
    own = context.spec.engine
    assert own is not None  # noqa: S101 - the engine is ours, so the target was given it
    with (
        SmallDisk(size_bytes=DISK_BYTES) as disk,
        start_engine(
            own.kind, config=without_replica(own.config), version=own.version, storage=disk.path
        ) as another,
    ):
        yield replace(context, engine=another, spec=replace(context.spec, engine=view_of(another)))
