"""While a scenario only waits, those that have an engine of their own are run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.verify.check import CheckOptions, _Run
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios import Outcome, Scenario, ScenarioContext
from holdfast.verify.spec import EngineView, TargetSpec
from holdfast.verify.workload.client_pool import Bounds
from tests.verify.check.checking import Notes


class Noted(Scenario):
    """Says when it began and ended; waits for nobody, or until `over`."""

    tests = ("ordered",)

    def __init__(self, name: str, log: list[str], *, apart: bool = False, waits: bool = False):
        self.name, self.log, self.apart, self.waits = name, log, apart, waits

    def run(self, context: ScenarioContext) -> Outcome:
        self.log.append(f"{self.name} begins")
        if self.waits:
            context.meanwhile(lambda: sum(word.endswith("ends") for word in self.log) > 1)
        if self.name == "interrupted":
            raise KeyboardInterrupt
        self.log.append(f"{self.name} ends")
        return Outcome([Finding("ordered", Verdict.KEPT, "", self.name)])


@pytest.fixture
def check(tmp_path: Path) -> _Run:
    view = EngineView("sqlite", "local", "default", "sqlite:///nowhere", "3", None)
    context = ScenarioContext(
        spec=TargetSpec("sqlite", engine=view),
        engine=None,
        seed=1,
        folder=tmp_path,
        bounds=Bounds(),
        scale=1.0,
        about={"name": "", "not_claimed": {}},
        say=lambda _: None,
    )
    return _Run(CheckOptions(), context, Notes(), deadline=time.monotonic() + 60)


def played(check: _Run, *scenarios: Scenario) -> list[tuple[str, Verdict]]:
    check.left = list(scenarios)
    check.run_left()
    return [(finding.scenario, finding.verdict) for finding in check.findings]


def test_what_is_apart_is_run_inside_one_that_waits_until_that_is_over(check: _Run):
    log: list[str] = []
    shares, first, second, third = (
        Noted(name, log, apart=name != "shares") for name in ("shares", "1st", "2nd", "3rd")
    )
    found = played(check, Noted("waits", log, waits=True), shares, first, second, third)
    assert log[:6] == [
        "waits begins", "1st begins", "1st ends", "2nd begins", "2nd ends", "waits ends",
    ]  # fmt: skip
    assert log[6:] == ["shares begins", "shares ends", "3rd begins", "3rd ends"]
    assert len(found) == 5


def test_where_one_client_at_a_time_is_allowed_nothing_is_run_beside_another(check: _Run):
    log: list[str] = []
    check.context.alone = "it lets no second process in"
    played(check, Noted("waits", log, waits=True), Noted("1st", log, apart=True))
    assert log == ["waits begins", "waits ends", "1st begins", "1st ends"]


def test_ctrl_c_inside_one_that_is_run_beside_another_leaves_both_unknown(check: _Run):
    log: list[str] = []
    waits, inner = Noted("waits", log, waits=True), Noted("interrupted", log, apart=True)
    found = played(check, waits, inner, Noted("never", log))
    unknown = Verdict.UNKNOWN
    assert found == [("waits", unknown), ("interrupted", unknown), ("never", unknown)]
    assert log == ["waits begins", "interrupted begins"]
