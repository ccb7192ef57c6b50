"""What every scenario has: a context to work in, and the way from its clients to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.model import Durability
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.engines.configs import without_replica
from holdfast.verify.history import Header, History, read_history
from holdfast.verify.judge import JUDGED, Anomaly, JudgeResult, Verdict, judge
from holdfast.verify.promises import PROMISES
from holdfast.verify.result import FaultTally, Finding
from holdfast.verify.scenarios.evidence import anomalies_json, faults_between
from holdfast.verify.spec import TargetSpec, view_of
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.fork_server import ForkServer
from holdfast.verify.workload.plan import Shape

SEEN_MAX: Final = 20
AT_ONCE: Final = 6
"""So many threads or tasks share one store, where they may."""
CROWD: Final = 16
"""The same where a group commit is to have groups."""
TTL_ERROR_S: Final = 0.3
"""How far the engine's clock and ours may be apart, and how late it may look at it."""
TTL_S_LONG: Final = 600.0
"""What lives so long does not expire while a scenario is under way."""
SEVERAL: Final = "of several engines failover, switchover, partition and pause strike one"
OF_SEVERAL: Final = ("failover", "switchover", "partition", "reshard")
"""Faults that need several engines."""
ON_SEVERAL: Final = (None, "kill", "pause", "crash-at-line", *OF_SEVERAL)
"""Faults that can be caused where the engine is several."""
_UNTESTED: Final[Mapping[str, str]] = {
    "exactly-once": "no key was used twice: does append() take a `key`? Otherwise do not claim it",
    "forgotten": "no forget was acknowledged",
    "expiring": "no read was late enough, or a write of unknown outcome may have refreshed it",
}


@dataclass(slots=True)
class Outcome:
    """What one scenario found. `hung`: clients did not come back, so more would not either."""

    findings: list[Finding] = field(default_factory=list)
    counts: list[Mapping[str, int]] = field(default_factory=list)
    hung: bool = False
    left_out: str | None = None
    """It turned out that this target cannot be put to this test, and why."""
    untried: list[tuple[str, str]] = field(default_factory=list)
    """The same for a part of it: the promise that it would have spoken for, and what and why."""


class Scenario:
    """Puts some promises to the test. `tests` names those for which it can speak "kept"."""

    name: str = ""
    about: str = ""
    """What is happening now, for the person who watches."""
    fault: str | None = None
    """Its name for `--faults`; None causes none."""
    tests: tuple[str, ...] = ()
    rank = 50
    """What usually finds most comes first; among equals the order of `SCENARIOS` holds."""
    patient = False
    """Where its fault is asked for by name, it takes the time that it needs."""
    aloud: bool = False
    """Causes no fault of a name, and yet is told by its own where it could not be run."""
    survived: Durability = Durability.MEMORY
    """What an ack has survived where this scenario says that `durable` was kept."""
    few = False
    """Its sessions are a handful of operations, which are told whole."""
    apart = False
    """It has an engine of its own, so that it can be run while another one waits."""
    upon_clients = False
    """Its fault strikes the clients: of a server, which lives on, it says nothing."""

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Why it cannot be run on this target, or None."""
        del context
        return None

    def run(self, context: ScenarioContext) -> Outcome:
        """Run it; `VerifyError` means that nothing can be said."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Small:
    """The least that shows a finding: so many clients, and all that each does in a session."""

    clients: int
    operations: tuple[str, ...]


@dataclass(slots=True)
class ScenarioContext:
    """Everything that a scenario works with."""

    spec: TargetSpec
    engine: Engine | None
    seed: int
    folder: Path
    bounds: Bounds
    scale: float
    """How much of everything: 1 is the usual amount."""
    about: Mapping[str, Any]
    """What the target said of itself: keyed, level, ttl_s, not_claimed."""
    say: Callable[[str], None]
    require: Durability = Durability.DISK
    """What an ack is held to, whatever level it names."""
    tallies: dict[str, FaultTally] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    """The faults that were asked for by name: they may take as long as there is time."""
    fork_server: ForkServer | None = None
    """Of which clients are forked; without one each is started."""
    small: Small | None = None
    """Fewer clients, and what each does in a session; None leaves that to the scenario."""
    alone: str = ""
    """Why there is one client at a time: the store lets no second process in, or loses messages
    as soon as several write, so that nothing else could be seen."""
    meanwhile: Callable[[Callable[[], bool]], None] = lambda _: None
    """Run what is `apart` until `is_over` says so: for a scenario whose clients need nobody for a while."""

    @property
    def can_overlap(self) -> bool:
        """Whether two scenarios may be under way at once: by their engines nothing else tells them apart."""
        return self.spec.engine is not None and self.spec.data is None and not self.alone

    @property
    def claimed(self) -> tuple[str, ...]:
        """The promises that the target makes."""
        return tuple(p for p in PROMISES if p not in self.about["not_claimed"])

    def at_once(self, usual: int) -> int:
        """So many clients at a time."""
        return 1 if self.alone else min(usual, self.small.clients if self.small else usual)

    @property
    def shares(self) -> bool:
        """Whether many at once may use one store of a process."""
        return bool(self.about.get("many")) and not self.alone and self.small is None

    def amount(self, usual: int) -> int:
        """So many, scaled to the time that there is."""
        return max(round(usual * self.scale), 5)

    def shape(self, name: str, **changes: Any) -> Shape:
        """A load that uses what the target claims to have."""
        keyed = bool(self.about["keyed"]) and "exactly-once" in self.claimed
        usual = {"keyed": keyed, "forgets": "forgotten" in self.claimed}
        return Shape(name, **{**usual, **changes, **(asdict(self.small) if self.small else {})})

    def clients(self, scenario: Scenario, *, spec: TargetSpec | None = None) -> ClientPool:
        """Clients for a scenario; use it in `with`."""
        return ClientPool(
            spec or self.spec,
            self.folder,
            name=scenario.name,
            seed=self.seed,
            bounds=self.bounds,
            fork_server=self.fork_server,
        )

    def start_mixed(
        self, clients: ClientPool, count: int, *, at_once: int = AT_ONCE, **job: Any
    ) -> list[ClientProcess]:
        """Clients of which every other one is many in one process, where the store allows that.

        As a service is: group commit, pools and shared connections are at work in nothing else. Of
        our own stores these use the async API and the sync one in turn.
        """
        many = count // 2 if self.shares else 0
        by_async = many - many // 2 if self.spec.is_holdfast else 0
        spec = job.pop("spec", None) or clients.spec
        begun = clients.begin(count - many, spec=spec, **job)
        begun += clients.begin(many - by_async, at_once=at_once, spec=spec, **job)
        spec = replace(spec, use_async=True)
        begun += clients.begin(by_async, at_once=at_once, spec=spec, **job)
        return clients.opened(begun)

    def reason_not(self, scenario: Scenario) -> str | None:
        """Why a scenario cannot be run on this target, or None."""
        engine = self.spec.engine
        several = engine is not None and engine.topology is not None
        if several and scenario.fault not in ON_SEVERAL:
            return SEVERAL
        return scenario.reason_not(self)

    def why_no_own_engine(self) -> str | None:
        """Why no second engine like the target's can be started here, or None."""
        engine = self.spec.engine
        if engine is None:
            return (
                None
                if self.spec.embedded
                else "holdfast does not manage this engine, so it cannot start a second one"
            )
        if engine.provider != "local":
            return f"the engine is from the provider {engine.provider}, not a local process"
        if engine.topology is not None:
            return SEVERAL
        return "a cluster is more than one engine" if engine.config == "cluster" else None

    def own_engine(self, **wanted: Any) -> tuple[Engine, TargetSpec]:
        """A second engine like the target's for one scenario, which closes it.

        And the target on it. The engine that the others work on stays as it is.
        """
        like = self.spec.engine
        if like is not None and like.kind != "sqlite":
            config = without_replica(like.config)
            wanted = {"config": config, "version": like.version, **wanted}
        engine = start_engine("sqlite" if like is None else like.kind, **wanted)
        return engine, replace(self.spec, engine=view_of(engine))

    def landed(self, fault: str, seen: str, *, in_flight: int = 0) -> None:
        """Note that a fault landed, and what proved it."""
        tally = self.tallies.setdefault(fault, FaultTally())
        tally.landed += 1
        tally.in_flight += in_flight
        if len(tally.seen) < SEEN_MAX:
            tally.seen.append(seen)

    def has_landed(self, fault: str | None) -> bool:
        """Whether a fault of this name was caused at least once."""
        return fault is not None and fault in self.tallies and self.tallies[fault].landed > 0

    def conclude(
        self,
        scenario: Scenario,
        clients: ClientPool,
        kept: str,
        *,
        header: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Stop the clients, read everything back, judge. `kept` says why a promise is kept."""
        clients.stop()
        clients.read_all()
        path = self.folder / f"{scenario.name}.jsonl"
        name = self.about["name"] or self.spec.name
        about = (header or self._lifetime()) | self.about.get("kept", {})
        clients.write(path, Header(name, claims=self.claimed, **about))
        history = read_history(path)
        result = judge(history)
        found = broken(scenario, history, result, every=scenario.few or self.small is not None)
        findings = [*found, *_tested(scenario, clients, result, kept)]
        counts = counts_of(result)
        return Outcome(findings, [counts], clients.hung)

    def _lifetime(self) -> dict[str, Any]:
        """Of a target whose sessions are short-lived: they may be over before they are read."""
        ttl_s = self.about.get("ttl_s")
        short = ttl_s is not None and ttl_s < TTL_S_LONG and "expiring" in self.claimed
        return {"ttl_s": ttl_s, "clock_error_s": TTL_ERROR_S} if short else {}

    def unknown(
        self, scenario: Scenario, because: str, *, not_landed: bool = False
    ) -> list[Finding]:
        """Nothing can be said of what this scenario tests."""
        return [
            Finding(p, Verdict.UNKNOWN, because, scenario.name, not_landed=not_landed)
            for p in scenario.tests
        ]


def counts_of(result: JudgeResult) -> dict[str, int]:
    """The counts of a verdict, as a check adds them up."""
    counts = dict(result.counts)
    del counts["faults"]
    counts["read_back"] = counts["acknowledged"] - counts["never_read"]
    return counts


def broken(
    scenario: Scenario, history: History, result: JudgeResult, *, every: bool = False
) -> Iterator[Finding]:
    """A finding for each promise that a root breaks, whether or not it was aimed at.

    What needs no fault comes first; what follows from these roots comes after them. `every`: small
    sessions are told whole, since each of their operations has a part in it.
    """
    by_promise: dict[str, list[Anomaly]] = {}
    for anomaly in sorted(result.roots, key=lambda root: _faults_needed(history, root)):
        by_promise.setdefault(anomaly.promise, []).append(anomaly)
    echoes = [anomaly for anomaly in result.anomalies if anomaly.follows_from is not None]
    evidence = {"acknowledged": result.counts["acknowledged"], "reads": result.counts["reads"]}
    for promise, anomalies in by_promise.items():
        names = {anomaly.name for anomaly in anomalies}
        own = [echo for echo in echoes if not names.isdisjoint(echo.follows_from or ())]
        found = _anomalies_json(
            scenario, history, [*anomalies, *own], result.anomalies, every=every
        )
        words = f"{anomalies[0].name}: {anomalies[0].because}"
        yield Finding(promise, Verdict.BROKEN, words, scenario.name, evidence, found)
    yield from _denied(scenario, history, result.roots)


def _faults_needed(history: History, anomaly: Anomaly) -> int:
    """How many faults there were from the first to the last operation of its witness."""
    operations = [history.operations[number] for number in anomaly.witness]
    began = min(operation.invoked_ns for operation in operations)
    ended = max(operation.invoked_ns for operation in operations)
    return len(faults_between(history, began, ended))


def _denied(
    scenario: Scenario, history: History, anomalies: Iterable[Anomaly]
) -> Iterator[Finding]:
    """A message that is shown although its append said "not done": that error was false."""
    denied = [
        anomaly
        for anomaly in anomalies
        if anomaly.name == "phantom"
        and any(
            append.status == "fail" and anomaly.message in append.ids()
            for append in history.sessions[anomaly.session].appends
        )
    ]
    if denied:
        words = f'an append said "not done", and its message {denied[0].message!r} is there'
        found = _anomalies_json(scenario, history, denied, denied)
        yield Finding("loud", Verdict.BROKEN, words, scenario.name, {}, found)


def _anomalies_json(
    scenario: Scenario,
    history: History,
    anomalies: list[Anomaly],
    among: Sequence[Anomaly],
    *,
    every: bool = False,
) -> tuple[dict[str, Any], ...]:
    name, fault = scenario.name, scenario.fault
    return tuple(anomalies_json(name, fault, history, anomalies, among=among, every=every))


def _tested(
    scenario: Scenario, clients: ClientPool, result: JudgeResult, kept: str
) -> Iterator[Finding]:
    """For each promise that was aimed at: kept, or unknown and why."""
    names = ("acknowledged", "reads", "unknown", "failed", "sessions")
    evidence = {name: result.counts[name] for name in names}
    for promise in (p for p in scenario.tests if p in JUDGED):
        verdict = result.promises[promise]
        if clients.trouble and verdict is not Verdict.NOT_CLAIMED:
            yield Finding(promise, Verdict.UNKNOWN, clients.trouble[0], scenario.name, evidence)
        elif clients.missed and verdict is not Verdict.NOT_CLAIMED:
            words = f"{scenario.name}: {clients.missed}"
            yield Finding(promise, Verdict.UNKNOWN, words, scenario.name, evidence, not_landed=True)
        elif verdict is Verdict.KEPT:
            how = result.weakened.get(promise)
            words = kept if how is None else f"{kept} ({how})"
            yield Finding(promise, verdict, words, scenario.name, evidence)
        elif verdict is Verdict.UNKNOWN:
            because = result.because
            if result.verdict is not Verdict.UNKNOWN:
                because = _UNTESTED.get(promise, "it was not put to the test")
            yield Finding(promise, verdict, f"{scenario.name}: {because}", scenario.name, evidence)
