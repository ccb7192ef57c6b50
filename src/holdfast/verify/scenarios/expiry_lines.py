"""A crash at every line of a session's first append: whatever that leaves expires all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import TTL_ERROR_S, Outcome, ScenarioContext
from holdfast.verify.scenarios.crash_at_line import OPS_PER_TASK, CrashAtLine, Visits
from holdfast.verify.scenarios.crash_plans import Visit, why_stuck
from holdfast.verify.scenarios.load import TTL_S_MAX
from holdfast.verify.scenarios.moved_clock import ClockExpiry, clock_settings, move_clock
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.plan import Step
from holdfast.verify.workload.task_server import Task

TTL_S: Final = 0.4
"""The time to live that our own store is tried with."""
LATE: Final = 8 / 7
"""A clock that is moved is moved by so many times the time to live."""


class ExpiryAtLine(CrashAtLine):
    """The application is ended between a write and its EXPIRE; then the time to live passes."""

    name = "expiry-at-line"
    about = "the application is ended at one line of a session's first append after another"
    tests = ("expiring",)
    looks_at = "begin"
    among_all_s = 0.5
    missed_max = 0.5  # few are visited, and other sessions decide on some lines of a first append

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Only who claims it is asked, and only where its time can pass."""
        if "expiring" not in context.claimed:
            return "expiring is not claimed"
        ttl_s = _ttl_s(context)
        if ttl_s is None:
            return "the target claims expiring and names no ttl_s"
        return None if ttl_s <= TTL_S_MAX else ClockExpiry().reason_not(context)

    def operations(self, context: ScenarioContext, found: dict[str, Any]) -> list[str]:
        """Nothing else."""
        del context, found
        return ["begin"]

    def run(self, context: ScenarioContext) -> Outcome:
        """A short time to live is waited for; a long one passes on a clock that is moved."""
        ttl_s = _ttl_s(context) or TTL_S
        if ttl_s <= TTL_S_MAX:
            brief = f"{context.spec.namespace}-ttl"
            spec = replace(context.spec, ttl_s=ttl_s, namespace=brief)
            return super().run(replace(context, spec=spec if spec.is_holdfast else context.spec))
        engine, spec = context.own_engine(settings=clock_settings(context), clock=True)
        with engine:
            return super().run(replace(context, engine=engine, spec=spec))

    def prepare(self, context: ScenarioContext, clients: ClientPool) -> None:
        """A client that is the engine itself lives by the engine's clock."""
        engine = context.engine
        if isinstance(engine, SqliteEngine) and engine.clock is not None:
            clients.instruments.append(engine.clock)

    def conclude(self, context: ScenarioContext, clients: ClientPool, visits: Visits) -> Outcome:
        """The judge leaves a write of unknown outcome its life, so this is judged here."""
        there = [visit for visit in visits.visits if visit.proven and visit.showed]
        if there:
            _pass_time(context, clients, _ttl_s(context) or TTL_S)
        left = _shown_now(visits, there)
        clients.stop()
        stuck = [one for one in visits.findings() if one.verdict is Verdict.BROKEN]
        if not (there or stuck or clients.trouble):
            return Outcome(left_out="no crash left a session whose time could pass")
        return Outcome([self._finding(clients, visits, there, left), *stuck], hung=clients.hung)

    def _finding(
        self, clients: ClientPool, visits: Visits, there: list[Visit], left: list[Visit]
    ) -> Finding:
        evidence: dict[str, Any] = {
            "points": visits.total,
            "explored": sum(visit.proven for visit in visits.visits),
            "sessions": len(there),
        }
        if left:
            words = (
                f"{visits.words()}; {len(left)} leave a session that is still there when its time "
                f"to live is over: {visits.these(left)}"
            )
            evidence["lines"] = visits.places(left)
            return Finding("expiring", Verdict.BROKEN, words, self.name, evidence)
        if clients.trouble or not evidence["explored"]:
            why = [*clients.trouble, visits.words()][0]
            return Finding("expiring", Verdict.UNKNOWN, why, self.name, evidence)
        words = f"{visits.words()}; of {len(there)} sessions that a crash left each has expired"
        return Finding("expiring", Verdict.KEPT, words, self.name, evidence)


def _shown_now(visits: Visits, there: list[Visit]) -> list[Visit]:
    """Those whose session shows a message now."""
    shown = []
    for first in range(0, len(there), OPS_PER_TASK):
        some = there[first : first + OPS_PER_TASK]
        steps = [Step("history", visit.crash_plan.session) for visit in some]
        number = visits.send(Task([step.to_json() for step in steps], aside=True))
        visits.until(number)
        for visit, answer in zip(some, visits.answers_to(number, steps), strict=True):
            if answer is None or answer["type"] != "ok":
                visits.clients.trouble.append(why_stuck(steps[:1], [answer], None))
            elif answer["messages"]:
                shown.append(visit)
    return shown


def _ttl_s(context: ScenarioContext) -> float | None:
    return TTL_S if context.spec.is_holdfast else context.about["ttl_s"]


def _pass_time(context: ScenarioContext, clients: ClientPool, ttl_s: float) -> None:
    """Let the time to live of everything that is there pass."""
    if ttl_s <= TTL_S_MAX:
        clients.watch(ttl_s + TTL_ERROR_S)
    elif context.engine is not None:
        move_clock(context, clients, context.engine, LATE * ttl_s)
