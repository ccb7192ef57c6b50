"""A crash at every line of the store: the application ends there."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from holdfast.errors import VerifyError
from holdfast.model import Durability
from holdfast.verify.history import Event
from holdfast.verify.judge import Verdict
from holdfast.verify.lines import Code, Point
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.crash_plans import (
    CrashPlan,
    Visit,
    crash_plan,
    steps_again,
    what_they_did,
    why_stuck,
)
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.plan import Step
from holdfast.verify.workload.task_server import ASIDE, Task

POINTS_MAX: Final = 5_000
POINTS_FEW: Final = 40
"""A store that has no more is explored whole, on a busy machine too."""
TRACES: Final = 3
"""So often an operation is watched, to know which lines it passes each time."""
TRIES: Final = 3
"""A line that threads pass in another order is tried so often."""
AGAIN_MAX: Final = 8
"""How often a refused call is made again."""
AHEAD: Final = 8
STUCK_MAX: Final = 3
"""A store that did not come back so often is not crashed further."""
NAMED_MAX: Final = 5
OPS_PER_TASK: Final = 100


@dataclass(frozen=True, slots=True)
class Strike:
    """The two tasks of a point by number, and what was seen meanwhile."""

    crash: int
    asked: int
    seen: str = ""


class CrashAtLine(Scenario):
    """Run up to a line, end the application there, reopen the store, and ask; line by line."""

    name = "crash-at-line"
    few = True
    about = "the application is ended at one line of the store after another"
    fault: str = "crash-at-line"
    tests: tuple[str, ...] = ("durable", "atomic", "exactly-once", "forgotten", "loud")
    patient = True
    survived = Durability.PROCESS
    upon_clients = True
    strike = "kill-app"
    happened = "the application ended"
    looks_at = "append"
    """The operation by which its code is found, and what that imports."""
    ahead = AHEAD
    """So many points are under way at once: nobody waits for the reader of the results."""
    missed_max = 0.1
    """Where more than this part of the points is not reached again, nothing is said."""
    among_all_s = 1.0
    """So long it takes where it was not asked for by its name, in a check of the usual time."""

    def run(self, context: ScenarioContext) -> Outcome:
        """Find the lines, crash at each, judge all of it at the end."""
        with context.clients(self) as clients:
            self.prepare(context, clients)
            for task_server in clients.start(serve=True):
                visits = Visits(self, context, clients, task_server)
                try:
                    points = visits.find()
                except VerifyError as error:
                    if self.fault in context.named:
                        raise
                    return Outcome(left_out=str(error))
                visits.all(points)
                return self.conclude(context, clients, visits)
            return Outcome(context.unknown(self, clients.trouble[0]), hung=clients.hung)

    def operations(self, context: ScenarioContext, found: dict[str, Any]) -> list[str]:
        """What is crashed in."""
        operations = ["append"]
        operations += ["rewrite"] if found["rewrites"] else []
        return operations + (["forget"] if "forgotten" in context.claimed else [])

    def conclude(self, context: ScenarioContext, clients: ClientPool, visits: Visits) -> Outcome:
        """Judge all of it."""
        outcome = context.conclude(self, clients, f"{visits.words()}, {self.happened} there")
        outcome.findings = [*visits.explain(outcome.findings), *visits.findings()]
        return outcome

    def prepare(self, context: ScenarioContext, clients: ClientPool) -> None:
        """What must be there before a client is started: nothing."""

    def begin(self, visits: Visits, struck: Task, asking: Task) -> Strike:
        """Hand out both tasks; the process that forks works them off by itself."""
        return Strike(visits.send(struck), visits.send(asking))

    def proof(self, visits: Visits, strike: Strike) -> str:
        """What proves the crash, or nothing; both tasks have ended then."""
        visits.until(strike.asked)
        return "ended by SIGKILL" * (visits.codes[strike.crash] == -signal.SIGKILL)


class Visits:
    """The crash points of one target, one after another."""

    def __init__(
        self,
        scenario: CrashAtLine,
        context: ScenarioContext,
        clients: ClientPool,
        task_server: ClientProcess,
        tasks_before: int = 0,
    ) -> None:
        self.scenario, self.context, self.clients, self.task_server = (
            scenario,
            context,
            clients,
            task_server,
        )
        self.codes: dict[int, int] = {}
        """How each task ended."""
        self.visits: list[Visit] = []
        self.total = 0
        self.passing = 0
        """Points that are passed now and then only."""
        self.code = Code(())
        self.modules: list[str] = []
        """What it takes to do the steps."""
        self.struck: dict[int, int] = {}
        """The process of each task that has reached its line."""
        self.strikes: Counter[int] = Counter()
        """How often each task has reached it."""
        self._events_of: dict[tuple[str, int], dict[str, Any]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._taken = 0
        self.tasks = tasks_before
        """So many were handed out; the numbers of several task servers must not be the same."""

    # The way

    def find(self) -> list[tuple[str, Point]]:
        """Every point, in the order in which it is passed; `VerifyError` where there is none."""
        points = list(self._points())
        if not points:
            raise VerifyError("no line of the store's own was executed")
        return points

    def all(self, points: list[tuple[str, Point]]) -> None:
        """Visit every point, or as many as the time allows in an order of the seed."""
        self.total = len(points)
        named = self.scenario.fault in self.context.named
        deadline = time.monotonic() + self.scenario.among_all_s * self.context.scale
        if not named or self.total > POINTS_MAX:
            random.Random(f"{self.context.seed}/{self.scenario.name}").shuffle(points)  # noqa: S311
        ahead = self.scenario.ahead
        for first in range(0, min(self.total, POINTS_MAX), ahead):
            if not named and self.total > POINTS_FEW and time.monotonic() > deadline:
                break
            self._explore(points[first : min(first + ahead, POINTS_MAX)])
            self.context.say(f"{self.scenario.about}: {len(self.visits)} of {self.total}")
            if sum(bool(visit.stuck) for visit in self.visits) >= STUCK_MAX:
                break
        if len(self._missed()) > self.scenario.missed_max * len(self.visits):
            where = self._at(self._missed()[0])
            self.clients.trouble.append(f"{self.words()}; {where} was not reached a second time")

    def _missed(self) -> list[Visit]:
        """What the clock decides: passed whenever it was watched, and not when it mattered."""
        return [visit for visit in self.visits if not visit.proven]

    def _points(self) -> Iterator[tuple[str, Point]]:
        usual = self._crash_plan(self.scenario.looks_at, f"{self.scenario.name}-look")
        steps = [step.to_json() for step in (*usual.before, *usual.after)]
        number = self.send(Task(steps, look=True))
        self.until(number)
        found = self._said("code", number)
        self.modules = found["modules"]
        self.send(Task([], imports=self.modules))
        self.code = Code(tuple(found["roots"]))
        for operation in self.scenario.operations(self.context, found):
            yield from ((operation, point) for point in self._lines_of(operation))

    def _lines_of(self, operation: str) -> list[Point]:
        """The points that such an operation passes each time; what it does now and then is not."""
        first, *others = [self._trace(operation) for _ in range(TRACES)]
        always = set(first).intersection(*others)
        self.passing += len(set(first).union(*others)) - len(always)
        return [point for point in first if point in always]

    def _trace(self, operation: str) -> list[Point]:
        whole = self._crash_plan(operation, f"{self.scenario.name}-{operation}-{self.tasks}")
        before = [step.to_json() for step in whole.before]
        task = Task(before, trace=True, roots=list(self.code.roots), aside=whole.aside)
        number = 0
        for _ in range(AGAIN_MAX):
            number = self.send(task)
            self.until(number)
            last = self._answers.get(number * OPS_PER_TASK + len(before) - 1)
            if last is None or last["type"] == "ok":
                break  # an operation that was refused passes few of its lines
        return [Point(*point) for point in self._said("trail", number)["points"]]

    def _explore(self, points: list[tuple[str, Point]]) -> None:
        """Visit these; a point that was not reached is tried again."""
        for _ in range(TRIES):
            begun = [(place, *self._begin(*place)) for place in points]
            visits = [(place, self._end(visit, strike)) for place, visit, strike in begun]
            self.visits += [visit for _, visit in visits if visit.proven]
            points = [place for place, visit in visits if not visit.proven]
        self.visits += [Visit(point) for _, point in points]

    def _begin(self, operation: str, point: Point) -> tuple[Visit, Strike]:
        """Up to the point, and what another process is to ask after it."""
        whole = self._crash_plan(operation, f"{self.scenario.name}-{operation}-{self.tasks}")
        struck = Task(
            [step.to_json() for step in whole.before],
            roots=list(self.code.roots),
            point=[point.file, point.line, point.hit],
            strike=self.scenario.strike,
            aside=whole.aside,
        )
        asking = Task([step.to_json() for step in whole.after], aside=whole.aside)
        return Visit(point, whole), self.scenario.begin(self, struck, asking)

    def _end(self, visit: Visit, strike: Strike) -> Visit:
        proof = self.scenario.proof(self, strike)
        visit.proven = bool(proof) and strike.crash in self.struck
        self._note(visit, strike.crash)
        if visit.proven:
            self.context.landed(self.scenario.fault, f"{proof} at {self._at(visit)}", in_flight=1)
            self._hear(visit, strike.asked)
        return visit

    def _note(self, visit: Visit, crash: int) -> None:
        """Put the fault into the history, at the time when the process had ended."""
        open_op = crash * OPS_PER_TASK + len(visit.crash_plan.before) - 1
        if not visit.proven and open_op in self._answers:
            return  # it came to its end: the line was not reached
        self.task_server.open.pop(open_op, None)
        # Of a server nobody knows what it still has in its buffers: those stay open.
        dead = (
            self.context.spec.embedded
            and not visit.crash_plan.aside
            and open_op not in self._answers
        )
        self.clients.faults.append(
            Event(
                "fault",
                self._events_of["ended", crash]["time_ns"],
                name="kill",
                closes=(open_op,) if dead else (),
            )
        )

    def _hear(self, visit: Visit, asked: int) -> None:
        whole = visit.crash_plan
        answers = self.answers_to(asked, whole.after)
        visit.stuck = why_stuck(whole.after, answers, self._events_of.get(("broke-off", asked)))
        visit.showed = bool((answers[0] or {}).get("messages"))
        if whole.torn is not None and not visit.stuck:
            visit.torn = whole.torn(whole, [each for each in answers if each])
        broke_off = ("broke-off", asked) in self._events_of
        if visit.stuck and (broke_off or None not in answers):
            visit.stuck = self._ask_again(whole, answers)

    def answers_to(self, number: int, steps: Sequence[Step]) -> list[dict[str, Any] | None]:
        """What was answered to each step of a task that has ended."""
        first = number * OPS_PER_TASK
        return [self._answers.get(first + place) for place in range(len(steps))]

    def _ask_again(self, whole: CrashPlan, answers: list[dict[str, Any] | None]) -> str:
        """Why it still does not serve: a store that refuses now and then is not one that is dead."""
        words = ""
        for number in range(AGAIN_MAX):
            steps = steps_again(whole, answers, number)
            task = Task([step.to_json() for step in steps], aside=whole.aside)
            asked = self.send(task)
            self.until(asked)
            heard = self.answers_to(asked, steps)
            words = why_stuck(steps, heard, self._events_of.get(("broke-off", asked)))
            if not words:
                break
        return words

    def _crash_plan(self, operation: str, session: str) -> CrashPlan:
        return crash_plan(operation, session, keyed=self.context.shape(session).keyed)

    # Tasks

    def send(self, task: Task) -> int:
        """Hand a task to the task server; returns its number, by which everything of it is known."""
        self.tasks += 1
        number = self.tasks
        bounds = self.context.bounds
        # The first one imports what the others then have.
        life_s = task.life_s or bounds.operation_s + (bounds.open_s if task.look else 0)
        numbered = replace(task, number=number, first_op=number * OPS_PER_TASK, life_s=life_s)
        self.task_server.tell(json.dumps(asdict(numbered)).encode() + b"\n")
        return number

    def until(self, number: int) -> None:
        """Return when that task has ended; its own alarm sees to that."""
        within_s = 2 * (self.context.bounds.open_s + self.context.bounds.operation_s)
        if not self.clients.until(lambda: number in self.codes_now(), within_s=within_s):
            raise VerifyError(f"the process that forks is gone: {self.task_server.last_words()}")

    def until_struck(self, number: int) -> bool:
        """Return when that task has reached its line, or ended without."""
        self.clients.until(lambda: number in self.codes_now() or number in self.struck)
        return number in self.struck and number not in self.codes

    def until_idle(self, number: int, within_s: float) -> None:
        """Return when that task has ended or has no operation under way, or the time is over."""
        self.clients.until(
            lambda: number in self.codes_now() or not self.task_server.open, within_s=within_s
        )

    def codes_now(self) -> dict[int, int]:
        """How tasks ended, with all that was recorded by now."""
        events = self.task_server.events
        while self._taken < len(events):
            event = events[self._taken]
            self._taken += 1
            kind = event["type"].removeprefix(ASIDE)
            if kind == "ended":
                self.codes[event["task"]] = event["code"]
            if kind == "struck":
                self.struck[event["task"]] = event["pid"]
                self.strikes[event["task"]] += 1
            if kind in ("ok", "fail", "info"):
                self._answers[event["op"]] = {**event, "type": kind}
            if "task" in event:
                self._events_of[kind, event["task"]] = event
        return self.codes

    def _said(self, kind: str, number: int) -> dict[str, Any]:
        """What a task told; `VerifyError` where it broke off instead."""
        if (kind, number) in self._events_of:
            return self._events_of[kind, number]
        broke = self._events_of.get(("broke-off", number), {})
        words = broke.get("because", f"exit {self.codes.get(number)}")
        raise VerifyError(f"its lines cannot be found: {words}")

    # What is said of it

    def words(self) -> str:
        """How many there are and how many were visited."""
        missed = len(self._missed())
        more = f" ({missed} are passed now and then only)" if missed else ""
        return f"{len(self.visits) - missed} of {self.total} crash points explored{more}"

    def _at(self, visit: Visit) -> str:
        return f"{visit.point.name(self.code)} `{visit.point.source}`"

    def these(self, visits: Iterable[Visit]) -> str:
        """Their lines, with the source."""
        first = {(visit.point.file, visit.point.line): visit for visit in reversed([*visits])}
        places = [self._at(visit) for visit in reversed(first.values())]
        more = f" and {len(places) - NAMED_MAX} more" if len(places) > NAMED_MAX else ""
        return ", ".join(places[:NAMED_MAX]) + more

    def places(self, visits: Iterable[Visit]) -> list[str]:
        """The line of each, with its source."""
        return [self._at(visit) for visit in visits]

    def explain(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings, with the lines at which a crash breaks the promise."""
        by_session = {visit.crash_plan.session: visit for visit in self.visits}
        every = [self._with_rewrites(finding) for finding in findings]
        broken = {finding.promise for finding in every if finding.verdict is Verdict.BROKEN}
        for finding in every:
            if finding.verdict is not Verdict.BROKEN and finding.promise in broken:
                continue
            roots = [each for each in finding.anomalies if each.get("follows_from") is None]
            guilty = [by_session.get(each["session"]) for each in roots]
            visits = list({id(v): v for v in guilty if v is not None}.values())
            explored = sum(visit.proven for visit in self.visits)
            points = {"points": self.total, "explored": explored, "now_and_then": self.passing}
            evidence = {**finding.evidence, **points}
            if not visits:
                yield replace(finding, evidence=evidence)
                continue
            torn = finding.evidence.get("rewrites", ())
            more = f"; {len(torn)} tear a rewrite: {torn[0]}" if torn else ""
            says = what_they_did(finding.promise, roots)
            yield replace(
                finding,
                because=f"{self.words()}; {len(visits)} {says}: {self.these(visits)}{more}",
                evidence={**evidence, "lines": self.places(visits)},
                anomalies=tuple(self._placed(each, by_session) for each in finding.anomalies),
            )

    def _with_rewrites(self, finding: Finding) -> Finding:
        """The judge knows no rewrite; one that is torn breaks `atomic` all the same."""
        torn = [visit for visit in self.visits if visit.torn]
        if not torn or finding.promise != "atomic":
            return finding
        words = f"{len(torn)} tear a rewrite: {self.these(torn)}"
        evidence = {**finding.evidence, "rewrites": [f"{self._at(v)}: {v.torn}" for v in torn]}
        return replace(
            finding, verdict=Verdict.BROKEN, because=f"{self.words()}; {words}", evidence=evidence
        )

    def _placed(self, anomaly: Any, by_session: dict[str, Visit]) -> dict[str, Any]:
        visit = by_session.get(anomaly["session"])
        where = {} if visit is None else {"at": self._at(visit)}
        return {**anomaly, **where}

    def findings(self) -> Iterator[Finding]:
        """What the judge does not speak of: whether the store works again."""
        name = self.scenario.name
        stuck = [visit for visit in self.visits if visit.stuck]
        if stuck:
            words = f"after a crash at {self.these(stuck)} it does not work again: {stuck[0].stuck}"
            yield Finding("loud", Verdict.BROKEN, words, name)
        elif self.clients.trouble:
            yield Finding("loud", Verdict.UNKNOWN, self.clients.trouble[0], name)
        else:
            words = f"after each of {len(self.visits)} crashes the next process could write"
            yield Finding("loud", Verdict.KEPT, words, name)
