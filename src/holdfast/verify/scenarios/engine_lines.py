"""A crash at every line of the store: its engine ends there, and the application lives on."""

from __future__ import annotations

from typing import Final

from holdfast.model import Durability
from holdfast.verify.engines import Engine, Evidence, Killable
from holdfast.verify.faults.engine import kill
from holdfast.verify.scenarios.base import ScenarioContext
from holdfast.verify.scenarios.crash_at_line import CrashAtLine, Strike, Visits
from holdfast.verify.workload.task_server import Task

ANSWER_S: Final = 2.0
"""So long an operation has to notice that its engine is gone, before that comes back."""


class EngineAtLine(CrashAtLine):
    """The same, and it is the engine that is ended: the application lives on and hears of it."""

    name = "engine-at-line"
    about = "the engine is ended at one line of the store after another"
    strike = "hold"
    happened = "the engine ended"
    upon_clients = False
    ahead = 1

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine of ours that can be killed."""
        if context.spec.embedded:
            return "there is no server: the clients are the engine"
        if context.require is Durability.MEMORY:
            return "--require MEMORY: a SIGKILL may lose what was acknowledged"
        killable = isinstance(context.engine, Killable)
        return (
            self.not_asked(context)
            if killable
            else "holdfast does not manage this engine, so it cannot kill it"
        )

    def not_asked(self, context: ScenarioContext) -> str | None:
        """Why it is not part of all faults, where it was not named."""
        if self.fault in context.named:
            return None
        return "it takes long, so it has to be asked for by name: --faults crash-at-line"

    def end(self, engine: Engine) -> Evidence:
        """What happens to the engine while the application is held at the line."""
        return kill(engine)

    def begin(self, visits: Visits, struck: Task, asking: Task) -> Strike:
        """End the engine, let the operation meet that, start it again, and ask."""
        crash, seen = visits.send(struck), ""
        engine = visits.context.engine
        if engine is not None and visits.until_struck(crash):
            seen = self.end(engine).seen
            visits.task_server.tell(b"g")
            visits.until_idle(crash, ANSWER_S)
            engine.start()
        visits.until(crash)
        asked = visits.send(asking)
        visits.until(asked)
        return Strike(crash, asked, seen)

    def proof(self, visits: Visits, strike: Strike) -> str:
        """What was seen of the engine's end."""
        del visits
        return strike.seen
