"""A disk that fails: fsync that does not sync, reads that cannot be done, and one that is slow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import VerifyError
from holdfast.model import Durability
from holdfast.verify.engines import Engine, Restartable
from holdfast.verify.faults import shims
from holdfast.verify.faults.faulty import FaultyDisk
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Bench, Outcome, Scenario
from holdfast.verify.scenarios.outage import Outages
from holdfast.verify.workload.crew import Crew
from holdfast.verify.workload.process import ClientProcess

CLIENTS: Final = 2
ENOUGH: Final = 50
"""Whoever did so much without an error notices none."""
SLOW_S: Final = 0.02
SLOW_APPENDS: Final = 10


class _DiskFault(Scenario):
    """What all need: the library, and an engine of their own on a disk that obeys us."""

    fault = "disk"

    def reason_not(self, bench: Bench) -> str | None:
        """It needs an engine of ours, and the library that stands before its disk."""
        try:
            shims.library("disk")
        except VerifyError as error:
            return str(error)
        return bench.why_no_own_engine()

    def run(self, bench: Bench) -> Outcome:
        """Start an engine on a disk that obeys us, and let it fail."""
        with FaultyDisk() as disk:
            engine, spec = bench.own_engine(instruments=[disk], storage="disk")
            with engine, bench.crew(self, spec=spec) as crew:
                if engine.data_dir is None:
                    raise VerifyError(f"disk: {engine.kind} has no directory of ours")
                disk.aim(engine.data_dir)
                crew.instruments = [disk] if spec.embedded else []
                return self.story(bench, crew, engine, disk)

    def story(self, bench: Bench, crew: Crew, engine: Engine, disk: FaultyDisk) -> Outcome:
        """What happens on it."""
        raise NotImplementedError


class FailedSync(_DiskFault):
    """The disk says of every fsync that it failed: then no ack may say that it is on the disk."""

    name = "failed-sync"
    about = "the disk refuses every fsync: nothing may be acknowledged; then it is slow"
    tests = ("durable", "loud")

    def reason_not(self, bench: Bench) -> str | None:
        """An ack that names no level claims DISK; one that names less does not wait for it."""
        level = bench.about.get("level")
        if level is not None and Durability[level] < Durability.DISK:
            return f"its acks promise {level} only, and do not wait for the disk"
        return super().reason_not(bench)

    def story(self, bench: Bench, crew: Crew, engine: Engine, disk: FaultyDisk) -> Outcome:
        """Fail until every client has met it, heal, be slow for a while."""
        outages = Outages(self.name)
        # No keys: a retry that is answered from what was stored before needs no fsync.
        shape = bench.shape(self.name, keyed=False, forgets=False)
        working = crew.hire(CLIENTS, shape=shape)
        for client in working:
            client.go()
        crew.until_acknowledged(bench.amount(30))
        lies: list[Finding] = []
        if working:
            lies = [*self._refuse(bench, crew, engine, disk, working, outages)]
            self._slow(bench, crew, disk)
        outcome = bench.conclude(self, crew, "failed and slow syncs")
        outcome.findings += [*outages.findings(crew), *lies]
        return outcome

    def _refuse(
        self,
        bench: Bench,
        crew: Crew,
        engine: Engine,
        disk: FaultyDisk,
        working: list[ClientProcess],
        outages: Outages,
    ) -> Iterator[Finding]:
        began_ns = crew.note_fault("disk")
        disk.fail_syncs()
        armed_ns = time.monotonic_ns()
        _met_by_all(crew, working)
        in_flight, healed_ns = len(crew.in_flight()), time.monotonic_ns()
        disk.heal()
        evidence = disk.landed()
        bench.landed("disk", evidence.seen, in_flight=in_flight)
        _revive(engine)
        outages.over(crew, working, began_ns, time.monotonic_ns())
        yield from _lies(self, crew.raw_events(), armed_ns, healed_ns, evidence.seen)

    def _slow(self, bench: Bench, crew: Crew, disk: FaultyDisk) -> None:
        disk.slow(SLOW_S)
        crew.until_acknowledged(SLOW_APPENDS)
        disk.heal()
        bench.landed("disk", disk.landed().seen)


class FailedRead(_DiskFault):
    """What was stored cannot be read for a while: an error, and never an empty memory."""

    name = "failed-read"
    about = "the disk cannot be read for a while: that is an error, not an empty memory"
    tests = ("loud",)

    def reason_not(self, bench: Bench) -> str | None:
        """It needs an engine that reads its disk while it serves."""
        engine = bench.spec.engine
        if engine is not None and engine.kind not in ("sqlite", "postgres"):
            return f"{engine.kind} reads its disk only when it starts"
        return super().reason_not(bench)

    def story(self, bench: Bench, crew: Crew, engine: Engine, disk: FaultyDisk) -> Outcome:
        """Some write; others, who have nothing in memory yet, come while nothing can be read."""
        outages = Outages(self.name, silent=True)
        shape = bench.shape(self.name, keyed=False, forgets=False)
        for client in crew.hire(shape=shape):
            client.go()
        crew.until_acknowledged(bench.amount(20))
        crew.stop()
        if isinstance(engine, Restartable):
            engine.restart()  # so that its memory is empty, too
        late = crew.hire(CLIENTS, shape=shape, lazy=True)
        began_ns = crew.note_fault("disk")
        disk.fail_reads()
        for client in late:
            client.go()
        _met_by_all(crew, late)
        in_flight = len(crew.in_flight())
        disk.heal()
        bench.landed("disk", disk.landed().seen, in_flight=in_flight)
        _revive(engine)
        outages.over(crew, late, began_ns, time.monotonic_ns())
        outcome = bench.conclude(self, crew, "reads that failed")
        outcome.findings += outages.findings(crew)
        return outcome


def _met_by_all(crew: Crew, clients: Sequence[ClientProcess]) -> None:
    """Wait until each had an error, or went on for so long that it will have none."""
    errors = {client.name: client.errors for client in clients}
    ended = {client.name: client.ended + ENOUGH for client in clients}
    crew.until(lambda: all(c.errors > errors[c.name] or c.ended > ended[c.name] for c in clients))


def _revive(engine: Engine) -> None:
    """An engine that ends rather than acknowledge what it could not sync does right."""
    if getattr(engine, "pid", 0) is None:
        engine.start()


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
