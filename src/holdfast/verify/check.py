"""The check: a target in, scenarios run on it, a verdict on each promise out."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast._version import __version__
from holdfast.connection import connect
from holdfast.errors import (
    FaultNotProven,
    HoldfastError,
    UsageError,
    VerifyError,
)
from holdfast.model import Durability
from holdfast.verify import guest
from holdfast.verify import spec as names
from holdfast.verify.check_options import LATE, CheckOptions
from holdfast.verify.data_link import DataLink
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.engines.configs import CONFIGS
from holdfast.verify.judge import Verdict
from holdfast.verify.opening import open_target
from holdfast.verify.promises import PROMISES
from holdfast.verify.required import missing_evidence, strictly, tested_to
from holdfast.verify.result import (
    CheckResult,
    FaultTally,
    Finding,
    add_counts,
    combine,
    overall,
)
from holdfast.verify.rundir import scratch
from holdfast.verify.scenarios import SCENARIOS, Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.moved_clock import ClockExpiry
from holdfast.verify.watchdog import Overdue, watchdog
from holdfast.verify.workload.client_pool import Bounds

__all__ = ["GRACE_S", "STUCK_AGAIN_S", "CheckOptions", "Watcher", "check", "machine", "started"]

_SCALE_MIN: Final = 0.1
GRACE_S: Final = 120.0
"""What has begun by then is given so long to end, and is then ended."""
STUCK_AGAIN_S: Final = 2.0
"""So long a store that did not work again after one outage is waited for after the next ones."""


class Watcher(Protocol):
    """Hears what is happening now."""

    def say(self, words: str) -> None:
        """What goes on, in a few words."""

    def done(self, scenario: str, verdict: str) -> None:
        """A scenario has ended."""


def check(options: CheckOptions, watcher: Watcher, *, whole: bool = True) -> CheckResult:
    """Hold a target to its promises. `VerifyError` where it cannot even be opened.

    Ctrl-C ends it early, with what is known by then; everything that was started is ended. Not
    `whole`: what one scenario did not break is kept by it, though no proof of the promise; Ctrl-C
    is the caller's.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        engine, spec = started(options, stack, watcher)
        folder = stack.enter_context(scratch())
        context = ScenarioContext(
            spec=spec,
            engine=engine,
            seed=options.seed,
            folder=folder,
            bounds=_bounds(options.time_s),
            scale=options.scale,
            about={"name": "", "not_claimed": {}},
            say=watcher.say,
            require=options.required,
            named=options.faults,
            small=options.small,
        )
        run = _Run(options, context, watcher, whole)
        stack.callback(run.close)
        run.all()
        return _result(run, time.monotonic() - began)


@dataclass(slots=True)
class _Run:
    """One check under way."""

    options: CheckOptions
    context: ScenarioContext
    watcher: Watcher
    whole: bool = True
    deadline: float = 0.0
    """After that no scenario is begun any more. To start and open the target is no part of it."""
    left: list[Scenario] = field(default_factory=list)
    """Those that are under way or still to come."""
    began: float = 0.0
    chosen: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: list[Mapping[str, int]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """What was not tried, by promise."""
    stopped: str | None = None
    """Why the scenarios that are left are not run."""
    late: str = ""
    """The same where there was no time for some of them."""
    refused: list[tuple[Scenario, str]] = field(default_factory=list)
    """Scenarios of a fault that was asked for by name, and why they cannot be run here."""
    kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What is to be put right at the end."""

    def all(self) -> None:
        """Open the target, then every scenario that was asked for and is possible."""
        with self._stoppable():
            self.watcher.say("opening the store")
            try:
                self.stopped = open_target(self.context, self.options.shown)
                self._take_claims()
            finally:  # what it made there goes, also where the check ends here
                self._take_data()
        if self.whole and self.stopped is None:
            self._refuse_what_it_has_not()
        self.deadline = time.monotonic() + self.options.limit_s
        self.left = sorted(self._chosen(), key=lambda scenario: scenario.rank)
        self.run_left()
        for scenario, reason in self.refused:
            # Where another scenario caused the same fault, it was caused.
            if not self.context.has_landed(scenario.fault):
                self.findings += self.context.unknown(scenario, reason)
        why = self.stopped or self.late or "none of these promises needs it, or its scenario failed"
        for fault in self.options.wanted_faults:
            self.context.tallies.setdefault(fault, FaultTally(not_run=why))

    def _refuse_what_it_has_not(self) -> None:
        """Operations that this store does not claim to have would be left out, or fail."""
        claimed = self.context.claimed
        has = {
            "forget": "forgotten" in claimed,
            "retry": "exactly-once" in claimed and bool(self.context.about["keyed"]),
        }
        for word in self.options.operations:
            if not has.get(word, True):
                promise = "forgotten" if word == "forget" else "exactly-once"
                raise UsageError(f"--operations {word}: the store does not claim {promise}")

    def run_left(self) -> None:
        """Those that are left, one after another; or one inside another, while that only waits."""
        self.began, self.chosen = time.monotonic(), len(self.left)
        self.context.meanwhile = self._meanwhile
        while self.left:
            with self._stoppable():
                self._next(self.left[0])

    def _next(self, scenario: Scenario) -> None:
        self._keep_pace()
        self._one(scenario)
        self.left.remove(scenario)

    def _meanwhile(self, is_over: Callable[[], bool]) -> None:
        """While a scenario only waits: those that have an engine of their own."""
        for scenario in [each for each in self.left if each.apart]:
            if self.context.can_overlap and self.stopped is None and not is_over():
                self._next(scenario)

    def _keep_pace(self) -> None:
        """A slow store, or a busy machine, gets fewer rounds, not fewer scenarios."""
        passed_s, left = time.monotonic() - self.began, len(self.left) / self.chosen
        room_s = LATE / 2 * self.options.time_s
        slower = max((room_s - passed_s) / (room_s * left), _SCALE_MIN)
        self.context.scale = self.options.scale * min(slower, 1.0)

    def _take_claims(self) -> None:
        """What the project says of the store counts beside what its target says."""
        about = self.context.about
        more = dict.fromkeys(self.options.not_claimed, "--not-claimed says so")
        self.context.about = {**about, "not_claimed": {**more, **about["not_claimed"]}}

    def _take_data(self) -> None:
        """A store that only says where its files are works on a directory of ours from now on."""
        data = self.context.about.get("data")
        if data is None:
            return
        engine = self.kept.enter_context(start_engine("sqlite", storage="disk"))
        view = names.view_of(engine)
        self.kept.enter_context(DataLink(Path(data), Path(view.data_dir or "")))
        self.context.engine = engine
        self.context.spec = replace(self.context.spec, engine=view, data=data)

    def close(self) -> None:
        """Leave no process behind, and nobody's directory changed."""
        self.kept.close()
        if self.context.fork_server is not None:
            self.context.fork_server.close()

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Ctrl-C ends what is inside; what is left is then not run, and unknown."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.whole:
                raise
            self.stopped = "stopped by Ctrl-C"

    def _chosen(self) -> Iterator[Scenario]:
        only = self.options.scenario
        if only is not None:
            yield next(scenario for scenario in SCENARIOS if scenario.name == only)
            return
        for scenario in SCENARIOS:
            asked = scenario.fault is None or scenario.fault in self.options.wanted_faults
            if asked and set(scenario.tests) & set(self.options.promises):
                yield scenario

    def _one(self, scenario: Scenario) -> None:
        """Run one scenario; whatever happens, something is said of what it tests."""
        # What was asked for by name, and takes the time that it needs, is not late.
        asked = scenario.patient and scenario.fault in self.options.faults
        if self.stopped is not None:
            self.findings += self.context.unknown(scenario, self.stopped)
            return
        reason = self.context.reason_not(scenario)
        if reason is not None:
            self._not_run(scenario, reason)
            return
        if time.monotonic() > self.deadline and not asked:
            self.late = f"time limit reached ({self.options.limit_s:g} s); raise --time"
            self.findings += self.context.unknown(scenario, self.late)
            return
        self.watcher.say(scenario.about)
        began = time.monotonic()
        outcome = self._outcome(scenario, patient=asked)
        if asked:
            self.deadline += time.monotonic() - began
        if outcome.left_out is not None:
            self._not_run(scenario, outcome.left_out)
            return
        if outcome.hung and scenario.fault is None:
            self.stopped = "the store hangs: the rest was not tried"
        self._note(scenario, outcome)

    def _outcome(self, scenario: Scenario, *, patient: bool) -> Outcome:
        """What it found; where it could not be run to its end, nothing is known."""
        limit_s = max(self.deadline - time.monotonic(), 0.0) + GRACE_S
        try:
            with watchdog(limit_s) as progress:
                # What takes the time that it needs is watched from one step to the next.
                context = self.context
                if patient:
                    say = context.say
                    context = replace(context, say=lambda words: (progress(), say(words))[1])
                return scenario.run(context)
        except VerifyError as error:
            missed = isinstance(error, FaultNotProven)
            words = f"{scenario.name}: {error}"
            return Outcome(self.context.unknown(scenario, words, not_landed=missed))
        except Overdue:
            self.stopped = f"{scenario.name} did not end within {limit_s:g} s, and was stopped"
            return Outcome(self.context.unknown(scenario, self.stopped))

    def _note(self, scenario: Scenario, outcome: Outcome) -> None:
        self.findings += outcome.findings
        self.counts += outcome.counts
        for promise, words in outcome.untried:
            self.left_out.setdefault(promise, []).append(words)
        if any(finding.evidence.get("stuck") for finding in outcome.findings):
            # That is known by now, so what is left of the time is for what is not.
            bounds = self.context.bounds
            self.context.bounds = replace(bounds, back_s=min(bounds.back_s, STUCK_AGAIN_S))
        found = [finding.verdict for finding in outcome.findings]
        worst = next((v for v in (Verdict.BROKEN, Verdict.UNKNOWN) if v in found), Verdict.KEPT)
        self.watcher.done(scenario.name, str(worst))

    def _not_run(self, scenario: Scenario, reason: str) -> None:
        """A fault that was named and is never caused leaves its promises unknown."""
        name = scenario.fault or (scenario.name if scenario.aloud else None)
        if name is not None:
            # The last one counts: an earlier one may have said "the engine's is taken instead".
            self.context.tallies.setdefault(name, FaultTally()).not_run = reason
        for promise in scenario.tests if scenario.aloud else ():
            self.left_out.setdefault(promise, []).append(f"{scenario.name} ({reason})")
        named = scenario.fault in self.options.faults
        if named or (scenario.name == "expiry" and not self._days_pass()):
            self.refused.append((scenario, f"{scenario.name} cannot be run: {reason}"))

    def _days_pass(self) -> bool:
        """Whether expiry is seen by a moved clock, or needs not be seen at all."""
        moved = "clock" in self.options.wanted_faults and not ClockExpiry().reason_not(self.context)
        return moved or "expiring" not in self.context.claimed


def _result(run: _Run, took_s: float) -> CheckResult:
    context, options = run.context, run.options
    # A fault that landed in one scenario was caused, whatever kept another from running.
    for tally in context.tallies.values():
        tally.not_run = None if tally.landed else tally.not_run
    counts = add_counts([dict.fromkeys(("acknowledged", "read_back", "lost"), 0), *run.counts])
    found = strictly(context, run.findings)
    if run.whole:
        more = list(missing_evidence(context, found, options.wanted_faults, counts["acknowledged"]))
    else:
        more = list(_not_broken(options.promises, found))
    findings = [*more, *found]  # of several unknowns, what to do about it is said first
    promises = combine(options.promises, context.about["not_claimed"], findings, run.left_out)
    return CheckResult(
        target=context.about["name"] or options.shown,
        seed=options.seed,
        verdict=overall(promises),
        promises=promises,
        faults=dict(context.tallies),
        counts=counts,
        environment=_environment(context, took_s),
        repeat=options.command,
        not_asked=tuple(p for p in PROMISES if p not in options.promises),
        tested_to=tested_to(context, found).name,
    )


def _not_broken(promises: Sequence[str], found: Sequence[Finding]) -> Iterator[Finding]:
    """A scenario that ran to its end, and so calls something kept, did not break the others."""
    ended = next((finding for finding in found if finding.verdict is Verdict.KEPT), None)
    for promise in promises if ended else ():
        if ended and promise not in {finding.promise for finding in found}:
            yield replace(ended, promise=promise)


def machine(took_s: float) -> dict[str, Any]:
    """With what, where and when a result was found."""
    return {
        "holdfast": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "took_s": round(took_s, 1),
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _environment(context: ScenarioContext, took_s: float) -> dict[str, Any]:
    engine = context.spec.engine
    return {
        **machine(took_s),
        "engine": None
        if engine is None
        else {
            "kind": engine.kind,
            "version": engine.version,
            "config": engine.config,
            "provider": engine.provider,
            "topology": engine.topology,
            "settings": dict(CONFIGS.get(engine.kind, {}).get(engine.config, {})),
        },
        "store": context.spec.maker,
        "level": context.about.get("level"),
        "settings": context.about.get("settings", {}),
    }


def started(
    options: CheckOptions, stack: contextlib.ExitStack, watcher: Watcher
) -> tuple[Engine | None, names.TargetSpec]:
    """The engine of a target, until the stack is closed, and the target on it."""
    engine = _engine(options, stack, watcher)
    return engine, _spec(options, engine, stack)


def _engine(options: CheckOptions, stack: contextlib.ExitStack, watcher: Watcher) -> Engine | None:
    """The engine of this target, started; None where the target brings its own."""
    kind = names.kind_of(options.target, options.engine)
    if kind is None:
        if options.config or options.engine_version or options.topology:
            raise UsageError("--config, --engine-version, --topology: for an engine that we start")
        return None
    watcher.say(f"starting {kind}")
    return stack.enter_context(
        start_engine(
            kind,
            config=options.config,
            version=options.engine_version,
            storage="disk",
            topology=options.topology,
        )
    )


def _spec(
    options: CheckOptions, engine: Engine | None, stack: contextlib.ExitStack
) -> names.TargetSpec:
    if engine is not None:
        # On several engines an ack is worth nothing before another has it, so ours waits for that.
        require = (
            "REPLICA" if options.topology and options.required >= Durability.REPLICA else "MEMORY"
        )
        return names.TargetSpec(options.target, engine=names.view_of(engine), require=require)
    if "://" not in options.target:
        return names.TargetSpec(options.target)
    url, namespace = guest.move_in(options.target, stack)
    spec = names.TargetSpec(url, namespace=namespace or f"holdfast-check-{secrets.token_hex(4)}")
    if not namespace:  # several servers: what can be forgotten is
        stack.callback(_clear, spec)
    return spec


def _clear(spec: names.TargetSpec) -> None:
    """Forget every session that a check made on an engine that is not its own."""
    for namespace in (spec.namespace, f"{spec.namespace}-ttl"):
        with (
            contextlib.suppress(HoldfastError),
            connect(spec.url, namespace=namespace, require=Durability.MEMORY) as store,
        ):
            while found := store.sessions(limit=1000):
                for session in found:
                    store.forget(session)


def _bounds(time_s: float) -> Bounds:
    usual = Bounds()
    return Bounds(
        open_s=min(usual.open_s, time_s),
        operation_s=min(usual.operation_s, time_s / 2),
        recover_s=min(usual.recover_s, time_s),
        back_s=min(usual.back_s, time_s),
        life_s=max(usual.life_s, 2 * time_s),
    )
