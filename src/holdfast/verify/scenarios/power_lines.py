"""The power goes while the store is at one of its lines; line by line."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from holdfast.model import Durability
from holdfast.verify.engines.protocol import Engine, PowerCuttable
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.process_tree import kill_tree
from holdfast.verify.proof import Evidence
from holdfast.verify.scenarios.base import Outcome, ScenarioContext
from holdfast.verify.scenarios.crash_at_line import Strike, Visits
from holdfast.verify.scenarios.engine_lines import EngineAtLine
from holdfast.verify.scenarios.power import PowerCut, powered
from holdfast.verify.scenarios.reach import files_of, prove_written
from holdfast.verify.spec import view_of
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.task_server import Task


class PowerAtLine(EngineAtLine):
    """Hold the application at a line and cut the power there; an embedded store goes with it."""

    name = "power-at-line"
    about = "the power is cut at one line of the store after another"
    happened = "the power cut"
    survived = Durability.DISK

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It has to be asked for, and needs what any power cut needs."""
        return self.not_asked(context) or PowerCut().reason_not(context)

    def run(self, context: ScenarioContext) -> Outcome:
        """On an engine of its own, whose power can be cut."""
        with powered(context.engine) as engine:
            spec = replace(context.spec, engine=view_of(engine))
            before = files_of(engine.data_dir)
            outcome = super().run(replace(context, engine=engine, spec=spec))
            prove_written(self.name, before, engine.data_dir)
            return outcome

    def prepare(self, context: ScenarioContext, clients: ClientPool) -> None:
        """A client that is the engine itself is started so that its power counts."""
        if isinstance(context.engine, SqliteEngine):
            clients.instruments.extend(context.engine.instruments)

    def end(self, engine: Engine) -> Evidence:
        """What was not on the engine's disk is gone; the application lives on elsewhere."""
        return cast("PowerCuttable", engine).power_cut()

    def begin(self, visits: Visits, struck: Task, asking: Task) -> Strike:
        """Cut; an embedded store's own process is gone with the power."""
        engine = visits.context.engine
        if not isinstance(engine, SqliteEngine):
            return super().begin(visits, struck, asking)
        crash, seen = visits.send(struck), ""
        if visits.until_struck(crash):
            seen = engine.power_cut(lambda: kill_tree(visits.struck[crash])).seen
        visits.until(crash)
        asked = visits.send(asking)
        visits.until(asked)
        return Strike(crash, asked, seen)
