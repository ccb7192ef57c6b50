"""The disk is full, under the clients or under their engine, and then it has room again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.server import ServerEngine
from holdfast.verify.faults.disk import DiskFault, FileSizeLimit, SmallDisk, disk_of, may_limit
from holdfast.verify.scenarios.base import Bench, Outcome, Scenario
from holdfast.verify.scenarios.outage import Outages
from holdfast.verify.spec import view_of
from holdfast.verify.workload.crew import Crew
from holdfast.verify.workload.process import ClientProcess

CLIENTS: Final = 3
DISK_BYTES: Final = 256 * 1024 * 1024


class DiskFull(Scenario):
    """The processes may write no further byte, and then they may again."""

    name = "disk-full"
    about = "the disk is full, and then it has room again"
    fault = "disk"
    tests = ("durable", "loud")
    clients = CLIENTS

    def reason_not(self, bench: Bench) -> str | None:
        """A server writes by itself."""
        if bench.spec.embedded:
            return None
        return EngineDiskFull().reason_not(bench) or "the engine's disk is filled instead"

    def run(self, bench: Bench) -> Outcome:
        """Fill, wait until every client has met it, release, wait until every one works again."""
        outages = Outages(self.name)
        with bench.crew(self) as crew:
            working = crew.hire(self.clients, shape=bench.shape(self.name))
            for client in working:
                client.go()
            crew.until_acknowledged(bench.amount(20))
            if working:
                self._fill(bench, crew, working, outages)
            outcome = bench.conclude(self, crew, "a full disk")
            outcome.findings += outages.findings(crew)
            return outcome

    def disk(self, bench: Bench, working: list[ClientProcess]) -> DiskFault:
        """The disk to fill."""
        del bench
        return FileSizeLimit([client.process.pid for client in working])

    def recover(self, bench: Bench, crew: Crew, working: list[ClientProcess]) -> None:
        """What an operator does once there is room: nothing."""

    def _fill(
        self, bench: Bench, crew: Crew, working: list[ClientProcess], outages: Outages
    ) -> None:
        disk = self.disk(bench, working)
        errors = {client.name: client.errors for client in working}
        # Before it: while the disk is being filled and that is proven, clients meet it already.
        began_ns = crew.note_fault("disk")
        evidence = disk.fill()
        try:
            met = crew.until(lambda: all(c.errors > errors[c.name] for c in working))
        finally:
            disk.release()
        if met:
            bench.landed("disk", evidence.seen, in_flight=len(crew.in_flight()))
        else:
            crew.trouble.append("not every client met the full disk")
        ended_ns = time.monotonic_ns()
        self.recover(bench, crew, working)
        outages.over(crew, working, began_ns, ended_ns)


class EngineDiskFull(DiskFull):
    """The engine may write no further: it refuses, or ends, and must not say that it was done."""

    name = "disk-full-engine"
    about = "the engine's disk is full under load, and then it has room again"
    clients = 2

    def reason_not(self, bench: Bench) -> str | None:
        """It needs a server of ours that writes before it answers."""
        if bench.spec.embedded:
            return "the clients' disk is filled instead"
        engine = bench.engine
        if not isinstance(engine, ServerEngine):
            return "the engine's disk is not ours to fill"
        if engine.settings.get("appendonly") == "no":
            return "with `appendonly no` it answers without writing anything"
        return None

    def run(self, bench: Bench) -> Outcome:
        """On the engine itself, or on one that has a small disk of its own."""
        with _on_a_disk(bench) as there:
            return super().run(there)

    def disk(self, bench: Bench, working: list[ClientProcess]) -> DiskFault:
        """That of its data directory."""
        del working
        return disk_of(_process(bench).data_dir)

    def recover(self, bench: Bench, crew: Crew, working: list[ClientProcess]) -> None:
        """Start it again if it ended, as any service is: Redis does, where it syncs always."""
        engine, ended_ns = _process(bench), time.monotonic_ns()

        def works() -> bool:
            engine.start()  # nothing happens where it runs
            return all(c.works_since(ended_ns) or not c.alive for c in working)

        crew.until(works, within_s=crew.bounds.recover_s)


def _process(bench: Bench) -> ServerEngine:
    assert isinstance(bench.engine, ServerEngine)  # noqa: S101 - reason_not looked
    return bench.engine


@contextlib.contextmanager
def _on_a_disk(bench: Bench) -> Iterator[Bench]:
    """This bench, if we may limit its engine; otherwise one more such engine on a small disk.

    PostgreSQL does not run as root: where we are root it belongs to another user.
    """
    engine = _process(bench)
    if engine.pid is not None and may_limit(engine.pid):
        yield bench
        return
    own = bench.spec.engine
    assert own is not None  # noqa: S101 - the engine is ours, so the target was given it
    with (
        SmallDisk(size_bytes=DISK_BYTES) as disk,
        start_engine(
            own.kind, config=own.config, version=own.version, storage=disk.path
        ) as another,
    ):
        yield replace(bench, engine=another, spec=replace(bench.spec, engine=view_of(another)))
