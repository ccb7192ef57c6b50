"""The power goes: whatever was not on the disk is gone, and what was acknowledged must be there."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from holdfast.errors import EngineFailed, VerifyError
from holdfast.model import Durability
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.engines.configs import without_replica
from holdfast.verify.engines.protocol import PowerCuttable
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.judge import Verdict
from holdfast.verify.power import open_supply
from holdfast.verify.proof import Evidence
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import CROWD, Outcome, ScenarioContext
from holdfast.verify.scenarios.engine_faults import Away, EngineFault
from holdfast.verify.scenarios.fault_timing import await_weak_window
from holdfast.verify.scenarios.reach import files_of, prove_written
from holdfast.verify.spec import view_of
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess, kill_all

CLIENTS: Final = 2
ROUNDS: Final = 3


@dataclass(slots=True)
class _Cuts:
    """What all cuts of a scenario did together."""

    mechanism: str = ""
    cuts: int = 0
    unsynced_bytes: int = 0
    in_flight: int = 0

    def add(self, evidence: Evidence, in_flight: int) -> None:
        self.mechanism = str(evidence.facts["mechanism"])
        self.cuts += 1
        self.unsynced_bytes += int(evidence.facts["unsynced_bytes"])
        self.in_flight += in_flight

    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def words(self) -> str:
        return (
            f"{self.cuts} power cuts ({self.mechanism}), {self.in_flight} operations in flight, "
            f"{self.unsynced_bytes} unsynced bytes dropped"
        )


class _NeverBack(VerifyError):
    """The engine does not start on what a cut left: everything in it is lost."""


class PowerCut(EngineFault):
    """Cut the power under load, several times; an own engine of the same kind stands for it."""

    name = "power-cut"
    rank = 3
    about = "the power is cut under load, and comes back"
    fault = "power"
    tests = ("durable", "atomic")
    rounds = ROUNDS
    survived = Durability.DISK

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that we can start, and a machine on which we may cut."""
        if context.require < Durability.DISK:
            return f"--require {context.require.name}: a power cut may lose what was acknowledged"
        if context.engine is None:
            return "the target brings its own engine or files, whose power holdfast cannot cut"
        if context.engine.provider != "local" or context.engine.config == "cluster":
            return "only the power of one engine of the provider local can be cut"
        return why_not()

    def run(self, context: ScenarioContext) -> Outcome:
        """Several rounds, then the verdict."""
        with powered(context.engine) as engine:
            spec = replace(context.spec, engine=view_of(engine))
            own = replace(context, engine=engine, spec=spec)
            self._cuts = _Cuts()
            try:
                outcome = self._embedded(own) if spec.embedded else super().run(own)
            except _NeverBack as error:
                outcome = self._lost_all(error)
        outcome.findings = [self._with_evidence(finding) for finding in outcome.findings]
        return outcome

    @property
    def kept(self) -> str:  # type: ignore[override]
        """Why a promise is kept, in words."""
        return self._cuts.words()

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """Cut, and start it again on what is left."""
        del met
        await_weak_window(context.engine, clients)
        evidence = cast("PowerCuttable", context.engine).power_cut()
        in_flight = self._note(clients, evidence)
        come_back(cast("Engine", context.engine))
        # What was acknowledged after that instant was not promised by anybody any more.
        at_ns = int(evidence.facts["at_ns"])
        return Away(at_ns, time.monotonic_ns(), evidence, in_flight)

    def _embedded(self, context: ScenarioContext) -> Outcome:
        """The clients are the engine: they go with the power, and others come after them."""
        engine = cast("SqliteEngine", context.engine)
        with context.clients(self) as clients:
            clients.instruments.extend(engine.instruments)
            # They open the store when it is their turn: what is open at a cut is dead after it.
            before = files_of(engine.data_dir)
            for working in self._turns(context, clients):
                for client in working:
                    client.go()
                clients.until_acknowledged(context.amount(40))
                prove_written(self.name, before, engine.data_dir)
                evidence = engine.power_cut(functools.partial(kill_all, working))
                in_flight = self._note(clients, evidence, dead=working)
                context.landed(self.fault, evidence.seen, in_flight=in_flight)
            return context.conclude(self, clients, self.kept)

    def _turns(self, context: ScenarioContext, clients: ClientPool) -> list[list[ClientProcess]]:
        """Who is at work at each cut: a few processes, or one in which many write at once.

        Apart from one another, since a process that syncs its own write syncs those of others as well.
        """
        shape = context.shape(self.name)
        shared = context.shares
        apart = 1 if shared else self.rounds
        at_once = context.at_once(CLIENTS)
        few = clients.start(at_once * apart, shape=shape, lazy=True)
        turns = [few[number : number + at_once] for number in range(0, len(few), at_once)]
        if shared:
            writes = replace(shape, appends_only=True)
            count = self.rounds - apart
            many = clients.start(count, shape=writes, lazy=True, at_once=CROWD)
            turns += [[client] for client in many]
        return turns

    def _note(
        self, clients: ClientPool, evidence: Evidence, dead: list[ClientProcess] | None = None
    ) -> int:
        in_flight = clients.lost_power(int(evidence.facts["at_ns"]), dead=dead or ())
        self._cuts.add(evidence, in_flight)
        return in_flight

    def _lost_all(self, error: VerifyError) -> Outcome:
        return Outcome([Finding("durable", Verdict.BROKEN, str(error), self.name)])

    def _with_evidence(self, finding: Finding) -> Finding:
        return replace(finding, evidence={**finding.evidence, "power": self._cuts.facts()})


@functools.cache
def why_not() -> str | None:
    """Why the power cannot be cut on this machine, or None. Asked once, by trying."""
    try:
        open_supply().close()
    except VerifyError as error:
        return str(error)
    return None


@contextlib.contextmanager
def powered(like: Engine | None) -> Iterator[Engine]:
    """An engine of the same kind, configuration and version, whose power can be cut."""
    if like is None:
        raise VerifyError("there is no engine whose power could be cut")
    version = None if like.kind == "sqlite" else like.version
    config = without_replica(like.config)
    with start_engine(like.kind, config=config, version=version, power="best") as engine:
        yield engine


def come_back(engine: Engine) -> None:
    """Start it again; one that cannot is asked twice before that counts."""
    for last in (False, True):
        try:
            engine.start()
        except EngineFailed as error:
            if last:
                raise _NeverBack(
                    f"it does not start any more after a power cut: {error}"
                ) from error
        else:
            return
