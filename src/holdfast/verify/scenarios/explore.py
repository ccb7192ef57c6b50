"""Crash states from one run: it is recorded once, and then the power goes at many instants."""

from __future__ import annotations

import bisect
import contextlib
import os
import queue
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.model import Durability
from holdfast.verify.crash_archive import pack
from holdfast.verify.engines import Engine, Killable, open_engine
from holdfast.verify.engines.configs import without_replica
from holdfast.verify.history import Header
from holdfast.verify.judge import Verdict
from holdfast.verify.power.trace import Crash, Loss, Recorder, Recording, build
from holdfast.verify.power.trace.inode_operations import Write
from holdfast.verify.power.trace.instants import Instant, choose
from holdfast.verify.result import ANOMALIES_MAX, Finding
from holdfast.verify.rundir import RunDir
from holdfast.verify.scenarios.base import (
    CROWD,
    TTL_S_LONG,
    Outcome,
    Scenario,
    ScenarioContext,
    broken,
    counts_of,
)
from holdfast.verify.scenarios.states import FAULT, Promised, Seen, Story, Visitor
from holdfast.verify.spec import view_of
from holdfast.verify.workload.plan import Step

CLIENTS: Final = 3
ACKS: Final = 80
"""So many are recorded among other faults."""
STATES: Final = 40
VISIT_S: Final = 2.0
"""So long states are visited among other faults."""
NAMED_ACKS: Final = 300
NAMED_STATES: Final = 300
NAMED_VISIT_S: Final = 20.0
STATES_MIN: Final = 8
"""So many are visited even if the time is over: on a busy machine two seconds are one or two."""
_READ_S_MIN: Final = 5.0
"""However short a check is: to open and read a store takes what it takes on a busy machine."""
_ROUND: Final = 4
"""States of one pass over the recording, in the order of time: the time may be over after the first."""


class PowerExplore(Scenario):
    """Record a run under load, build what the power could have left at many instants, read it."""

    name = "power-explore"
    about = "one run is recorded; what the power leaves at many instants of it is booted and read"
    fault = FAULT
    tests = ("durable", "atomic")
    survived = Durability.DISK

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that we can start again on other data, and strace."""
        if context.require < Durability.DISK:
            return f"--require {context.require.name}: a power cut may lose what was acknowledged"
        engine = context.engine
        if engine is None or engine.provider != "local" or engine.config == "cluster":
            return "only one engine of the provider local can be started on crash states"
        if engine.kind not in ("redis", "valkey", "postgres", "sqlite"):
            return f"{engine.kind} cannot be started on crash states by this release"
        if shutil.which("strace") is None:
            return "strace is not here; to get it: apt-get install strace"
        return _why_not_read_later(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """Record, then visit states until enough were seen or the time is over."""
        named = self.fault in context.named
        visit_s = NAMED_VISIT_S * context.scale if named else VISIT_S * min(1.0, context.scale)
        states = context.amount(NAMED_STATES) if named else STATES
        scratch = RunDir("memory")
        try:
            story = self._record(
                context, scratch.path, context.amount(NAMED_ACKS if named else ACKS)
            )
            tour = Tour(context, self, story, scratch.path)
            tour.visit(states, time.monotonic() + visit_s)
            return Outcome(list(tour.findings()), tour.counts())
        finally:
            scratch.clear()

    def _record(self, context: ScenarioContext, scratch: Path, acks: int) -> Story:
        directory, traces = scratch / "run", scratch / "trace"
        for made in (directory, traces):
            made.mkdir(mode=0o711)
        recorder = Recorder(directory, traces)
        with _like(context.engine, directory, recorder) as engine:
            spec = replace(context.spec, engine=view_of(engine))
            # A process that is traced takes about twice as long until its store is open.
            bounds = replace(context.bounds, open_s=2 * context.bounds.open_s)
            with replace(context, bounds=bounds).clients(self, spec=spec) as clients:
                clients.instruments += [recorder] if spec.embedded else []
                # Of three that each sync their own writes, none leaves the others' unsynced for long.
                several = context.at_once(2 if context.about.get("many") else CLIENTS)
                # One makes the tables of a new directory: of several at once SQLite refuses some.
                first = [[Step("history", "first")]] if several > 1 else []
                for client in clients.start(0, scripts=first):
                    client.go()
                shape = context.shape(self.name, large_by=f"{self.name}.c{1 + len(first)}")
                for client in context.start_mixed(clients, several, at_once=CROWD, shape=shape):
                    client.go()
                clients.until_acknowledged(acks)
                clients.stop()
                if clients.trouble:
                    raise VerifyError(f"the run could not be recorded: {clients.trouble[0]}")
                path = context.folder / f"{self.name}.jsonl"
                clients.write(
                    path,
                    Header(
                        context.about["name"] or spec.name,
                        claims=context.claimed,
                        **context.about.get("kept", {}),
                    ),
                )
            if isinstance(engine, Killable):
                engine.kill()
            recording = recorder.finish()
            recording.prove(directory)
            if not spec.is_holdfast:
                _prove_written(recording)
            data = str(Path(engine.data_dir or directory).relative_to(directory))
            return Story(recording, path, spec, data)


def _why_not_read_later(context: ScenarioContext) -> str | None:
    """Why the target cannot be read on one state after another, later; or None."""
    ttl_s = context.about.get("ttl_s")
    if ttl_s is not None and ttl_s < TTL_S_LONG:
        return f"its sessions live {ttl_s:g} s: they may be over before a state is read"
    if context.spec.data is not None:
        return "its files have one name, so crash states cannot be read side by side"
    return None


@contextlib.contextmanager
def _like(engine: Engine | None, directory: Path, recorder: Recorder) -> Iterator[Engine]:
    """A new engine of the same kind, configuration and version, recorded in this directory."""
    if engine is None:
        raise VerifyError("there is no engine to record")
    embedded = engine.kind == "sqlite"
    own = open_engine(
        engine.kind,
        config=without_replica(engine.config),
        version=None if embedded else engine.version,
        storage=directory,
        instruments=() if embedded else (recorder,),
        provider="local",
    )
    with own:
        yield own


def _prove_written(recording: Recording) -> None:
    """A user's target may ignore its engine; then crash states of that one say nothing."""
    if not any(isinstance(done, Write) for done in recording.operations):
        raise FaultNotProven(
            "power-explore: writes were acknowledged and none reached the engine's directory: "
            "does the target keep its data elsewhere?"
        )


@dataclass(slots=True)
class Visited:
    """One state that was visited, and what it broke: findings, or why nothing is known."""

    instant: Instant
    crash: Crash
    promised: Promised
    broken: list[Finding] = field(default_factory=list)
    unknown: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


def judge_state(
    scenario: Scenario, story: Story, at_ns: int, promised: Promised, seen: Seen, *, every: bool
) -> tuple[list[Finding], str, Mapping[str, int]]:
    """What a state broke by what was seen of it, why something is not known, and counts."""
    if seen.lost and promised.acknowledged:
        return [Finding("durable", Verdict.BROKEN, seen.lost, scenario.name)], "", {}
    if seen.lost or seen.unknown:
        return [], seen.lost or seen.unknown, {}
    history, result = story.judge(at_ns, promised, seen.reads)
    # Before the first ack nothing was promised yet: other states speak for that.
    unsure = result.verdict is Verdict.UNKNOWN and promised.acknowledged
    wrong = list(broken(scenario, history, result, every=every))
    return wrong, result.because if unsure else "", counts_of(result)


class Tour:
    """Visits crash states of a story, on all cores."""

    def __init__(
        self, context: ScenarioContext, scenario: Scenario, story: Story, scratch: Path
    ) -> None:
        self.visited: list[Visited] = []
        self.took_s = 0.0
        self._context, self._scenario, self._story = context, scenario, story
        self._scratch = scratch
        self._cores = os.cpu_count() or 1
        self._visitors: queue.SimpleQueue[Visitor] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(2 * self._cores)
        self._states = count()

    def visit(self, states: int, deadline: float) -> None:
        """Visit so many, or fewer, but some, if the time is over before."""
        began = time.monotonic()
        plan = choose(
            self._story.recording.operations, self._story.acks_ns(), seed=self._context.seed
        )
        wanted = islice(plan, states)
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(self._cores) as pool:
            for number in range(self._cores):
                folder = self._scratch / f"visitor-{number}"
                timeout_s = max(self._context.bounds.recover_s, _READ_S_MIN)
                visitor = stack.enter_context(Visitor(self._story, folder, timeout_s=timeout_s))
                self._visitors.put(visitor)
            while not self._is_over(deadline) and (some := list(islice(wanted, _ROUND))):
                self._round(sorted(some), pool, deadline)
        self.took_s = time.monotonic() - began

    def _round(self, instants: list[Instant], pool: ThreadPoolExecutor, deadline: float) -> None:
        """One pass over the recording; each state is built while others are visited."""
        story, futures, done = self._story, list[Future[Visited]](), 0
        disk = story.recording.disk()
        operations = story.recording.operations
        for instant in instants:
            if self._is_over(deadline, under_way=len(futures)):
                break
            ended = bisect.bisect_right(operations, instant.at_ns, key=lambda each: each.at_ns)
            disk.take(operations[done:ended])
            done = ended
            chosen = replace(instant, loss=Loss.DROPPED) if disk.at_rest else instant
            crash = disk.crash(chosen.at_ns, chosen.loss, self._context.seed)
            self._room.acquire()
            state = self._scratch / f"state-{next(self._states)}"
            state.mkdir(mode=0o711)
            build(crash, story.recording.base, story.recording.kinds, state)
            futures.append(pool.submit(self._one, chosen, crash, state))
        for future in futures:
            found = future.result()
            self.visited.append(found)
            self._context.landed(FAULT, self._words(found), in_flight=len(found.promised.in_flight))
        self._context.say(f"{self._scenario.about}: {len(self.visited)}")

    def _is_over(self, deadline: float, under_way: int = 0) -> bool:
        return time.monotonic() > deadline and len(self.visited) + under_way >= STATES_MIN

    def _one(self, instant: Instant, crash: Crash, state: Path) -> Visited:
        promised = self._story.until(instant.at_ns)
        visitor = self._visitors.get()
        try:
            seen = visitor.visit(state, promised.sessions)
        finally:
            self._visitors.put(visitor)
            # A thread of the store may still be at work there; what is left goes with the scratch.
            shutil.rmtree(state, ignore_errors=True)
            self._room.release()
        return self._judge(Visited(instant, crash, promised), seen)

    def _judge(self, found: Visited, seen: Seen) -> Visited:
        every = self._context.small is not None
        found.broken, found.unknown, found.counts = judge_state(
            self._scenario, self._story, found.instant.at_ns, found.promised, seen, every=every
        )
        return found

    # What is said of it

    def findings(self) -> Iterator[Finding]:
        """For each promise: broken and by which states, or kept in so many."""
        name, evidence = self._scenario.name, self._evidence()
        promises = dict.fromkeys(f.promise for one in self.visited for f in one.broken)
        for promise in promises:
            yield self._broken(promise, evidence)
        unknown = next((one.unknown for one in self.visited if one.unknown), "")
        for promise in self._scenario.tests:
            if promise in promises:
                continue
            if unknown or not any(one.promised.acknowledged for one in self.visited):
                words = unknown or "no crash state after an ack was visited in the time there was"
                yield Finding(promise, Verdict.UNKNOWN, f"{name}: {words}", name, evidence)
            else:
                yield Finding(promise, Verdict.KEPT, self._kept(), name, evidence)

    def counts(self) -> list[Mapping[str, int]]:
        """Those of the worst state: the one run counts once, however often it was cut short."""
        counted = [one.counts for one in self.visited if one.counts]
        worst = max(counted, key=lambda c: (c["lost"], c["acknowledged"]), default=None)
        return [] if worst is None else [worst]

    def _broken(self, promise: str, evidence: dict[str, Any]) -> Finding:
        found = [(one, f) for one in self.visited for f in one.broken if f.promise == promise]
        first, finding = found[0]
        words = (
            f"{len(found)} of {len(self.visited)} crash states break it; "
            f"{self._place(first.instant)}: {finding.because}"
        )
        anomalies = [
            {**anomaly, "state": self._state(one)} for one, f in found for anomaly in f.anomalies
        ]
        states = {"states_broken": [self._state(one) for one, _ in found][:ANOMALIES_MAX]}
        shown = tuple(anomalies[:ANOMALIES_MAX])
        return Finding(
            promise, Verdict.BROKEN, words, finding.scenario, {**evidence, **states}, shown,
            crash_state=self._packed([one for one, _ in found]),
        )  # fmt: skip

    def _packed(self, found: list[Visited]) -> str:
        """The state after the fewest acks, once more as it was before anybody opened it."""
        recording = self._story.recording
        if any(kind.owner and kind.type == "file" for kind in recording.kinds.values()):
            return ""  # of another user, as PostgreSQL's are, which are too large as well
        one = min(found, key=lambda each: (each.promised.acknowledged, each.instant.at_ns))
        folder = self._scratch / f"state-{next(self._states)}"
        folder.mkdir(mode=0o711)
        build(one.crash, recording.base, recording.kinds, folder)
        packed = pack(folder / self._story.data, [self._story.header, *one.promised.lines])
        shutil.rmtree(folder)
        return packed

    def _kept(self) -> str:
        kinds = Counter(str(one.instant.loss) for one in self.visited)
        listed = ", ".join(f"{many} {loss}" for loss, many in sorted(kinds.items()))
        return f"{len(self.visited)} crash states of one run ({listed})"

    def _evidence(self) -> dict[str, Any]:
        kinds = Counter(str(one.instant.loss) for one in self.visited)
        return {
            "states": len(self.visited),
            "losses": dict(kinds),
            "instants": len({one.instant.at_ns for one in self.visited}),
            "dropped_bytes": sum(one.crash.dropped_bytes for one in self.visited),
            "calls": len(self._story.recording.operations),
            "states_per_s": round(len(self.visited) / self.took_s, 1) if self.took_s else 0.0,
        }

    def _state(self, one: Visited) -> dict[str, Any]:
        return {
            "at_ms": round((one.instant.at_ns - self._story.began_ns) / 1e6, 3),
            "when": one.instant.why,
            "loss": str(one.instant.loss),
            "seed": self._context.seed,
            "acknowledged": one.promised.acknowledged,
            "dropped_bytes": one.crash.dropped_bytes,
        }

    def _place(self, instant: Instant) -> str:
        at_ms = (instant.at_ns - self._story.began_ns) / 1e6
        return (
            f"{instant.why}, {at_ms:.1f} ms into the run, what was not synced {_LEFT[instant.loss]}"
        )

    def _words(self, one: Visited) -> str:
        return f"{self._place(one.instant)}; {one.crash.dropped_bytes} unsynced bytes"


_LEFT: Final = {
    Loss.DROPPED: "dropped",
    Loss.NAMES: "dropped but for names",
    Loss.TORN: "torn",
    Loss.PAGES: "in part, page by page",
}
