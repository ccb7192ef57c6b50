"""A crash at every line of a summary: no message is told twice, and none by no summary."""

from __future__ import annotations

from typing import Any

from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, ScenarioContext
from holdfast.verify.scenarios.crash_at_line import CrashAtLine, Visits
from holdfast.verify.workload import summary_check
from holdfast.verify.workload.client_pool import ClientPool


class SummaryAtLine(CrashAtLine):
    """The application is ended between a turn and its summary; another process does it again."""

    name = "summary-at-line"
    about = "the application is ended at one line of a summary after another"
    tests = ("recallable",)
    looks_at = "summarize"

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Only who claims it is asked, and only who keeps summaries can be."""
        if "recallable" not in context.claimed:
            return "the target does not claim recallable"
        return None if context.about.get("summarizes") else summary_check.NONE

    def operations(self, context: ScenarioContext, found: dict[str, Any]) -> list[str]:
        """Nothing else."""
        del context, found
        return ["summarize"]

    def conclude(self, context: ScenarioContext, clients: ClientPool, visits: Visits) -> Outcome:
        """The judge knows nothing of summaries: each visit has been judged by itself."""
        del context
        clients.stop()
        stuck = [one for one in visits.findings() if one.verdict is Verdict.BROKEN]
        return Outcome([self._finding(clients, visits), *stuck], hung=clients.hung)

    def _finding(self, clients: ClientPool, visits: Visits) -> Finding:
        torn = [visit for visit in visits.visits if visit.torn]
        explored = sum(visit.proven for visit in visits.visits)
        evidence = {"points": visits.total, "explored": explored}
        if torn:
            words = (
                f"{visits.words()}; {len(torn)} lose or double a summary: {visits.these(torn)}: "
                f"{torn[0].torn}"
            )
            return Finding("recallable", Verdict.BROKEN, words, self.name, evidence)
        stuck = [visit.stuck for visit in visits.visits if visit.stuck]
        if stuck or clients.trouble or not explored:
            why = [*stuck, *clients.trouble, visits.words()][0]
            return Finding("recallable", Verdict.UNKNOWN, f"{self.name}: {why}", self.name)
        kept = f"every message is told by one summary, {visits.words()} inside summarize()"
        return Finding("recallable", Verdict.KEPT, kept, self.name, evidence)
