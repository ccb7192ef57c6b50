"""The power goes while the store is at one of its lines; line by line."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from holdfast.verify.engines.protocol import Engine, Evidence, PowerCuttable
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.faults.process import kill_tree
from holdfast.verify.scenarios.base import Bench, Outcome
from holdfast.verify.scenarios.lines import EngineAtLine, Strike, Visits
from holdfast.verify.scenarios.power import PowerCut, powered
from holdfast.verify.spec import view_of
from holdfast.verify.workload.crew import Crew
from holdfast.verify.workload.zygote import Task


class PowerAtLine(EngineAtLine):
    """Hold the application at a line and cut the power there; an embedded store goes with it."""

    name = "power-at-line"
    about = "the power is cut at one line of the store after another"
    happened = "the power cut"

    def reason_not(self, bench: Bench) -> str | None:
        """It has to be asked for, and needs what any power cut needs."""
        return self.not_asked(bench) or PowerCut().reason_not(bench)

    def run(self, bench: Bench) -> Outcome:
        """On an engine of its own, whose power can be cut."""
        with powered(bench.engine) as engine:
            spec = replace(bench.spec, engine=view_of(engine))
            return super().run(replace(bench, engine=engine, spec=spec))

    def prepare(self, bench: Bench, crew: Crew) -> None:
        """Whoever is the engine itself has to be started so that its power counts."""
        if isinstance(bench.engine, SqliteEngine):
            crew.instruments.extend(bench.engine.instruments)

    def end(self, engine: Engine) -> Evidence:
        """What was not on the engine's disk is gone; the application lives on elsewhere."""
        return cast("PowerCuttable", engine).power_cut()

    def begin(self, visits: Visits, struck: Task, asking: Task) -> Strike:
        """Cut; an embedded store's own process is gone with the power."""
        engine = visits.bench.engine
        if not isinstance(engine, SqliteEngine):
            return super().begin(visits, struck, asking)
        crash, seen = visits.send(struck), ""
        if visits.until_struck(crash):
            seen = engine.power_cut(lambda: kill_tree(visits.struck[crash])).seen
        visits.until(crash)
        asked = visits.send(asking)
        visits.until(asked)
        return Strike(crash, asked, seen)
