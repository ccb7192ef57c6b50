"""What a scenario says without proof is "unknown": each rule by itself, on what was recorded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.verify.judge import Verdict
from holdfast.verify.lines import Point
from holdfast.verify.scenarios import CrashAtLine, ScenarioContext
from holdfast.verify.scenarios.crash_at_line import OPS_PER_TASK, Strike, Visits
from holdfast.verify.scenarios.crash_plans import Visit, crash_plan
from holdfast.verify.scenarios.outage import ENOUGH, GONE, Outages, false_answers, met_by
from holdfast.verify.scenarios.recall import RecallAfterKill
from holdfast.verify.spec import TargetSpec
from holdfast.verify.suite import judging
from holdfast.verify.target import Target
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from holdfast.verify.workload.plan import message


@pytest.fixture
def clients(tmp_path: Path) -> ClientPool:
    return ClientPool(TargetSpec("sqlite"), tmp_path, name="test", seed=1, bounds=Bounds())


def context_in(folder: Path) -> ScenarioContext:
    return ScenarioContext(
        spec=TargetSpec("sqlite"),
        engine=None,
        seed=1,
        folder=folder,
        bounds=Bounds(),
        scale=1.0,
        about={"not_claimed": {}, "keyed": False},
        say=lambda _: None,
    )


def test_an_outage_that_no_client_met_says_nothing_about_errors(clients: ClientPool):
    (said,) = Outages("x", spans=[(10, 20)], silent=GONE).findings(clients)
    assert (said.promise, said.verdict, said.not_landed) == ("loud", Verdict.UNKNOWN, True)
    assert "no client met the fault" in said.because


def test_an_error_met_while_the_fault_was_being_caused_is_the_faults(
    clients: ClientPool, monkeypatch: pytest.MonkeyPatch
):
    error = {"type": "fail", "op": 1, "time_ns": 7, "error": "refused"}
    monkeypatch.setattr(clients, "raw_events", lambda: [error, {**error, "op": 2, "time_ns": 12}])
    (said,) = Outages("x", spans=[(10, 20)], struck_ns=5, silent=GONE).findings(clients)
    assert (said.verdict, said.evidence["errors"]) == (Verdict.KEPT, 2)


def test_what_clients_do_while_a_fault_is_being_caused_is_not_what_they_do_under_it():
    quick, slow = (cast("Any", SimpleNamespace(name=n, ended=0, error_kinds=set())) for n in "qs")
    met = met_by([quick, slow])
    quick.ended = slow.ended = ENOUGH + 1  # a disk that takes long to be filled
    quick.error_kinds.add("ENOSPC")
    assert met() is None
    slow.error_kinds.add("ENOSPC")
    assert met() is True


def test_a_client_that_does_enough_under_a_fault_without_an_error_notices_none():
    deaf = cast("Any", SimpleNamespace(name="deaf", ended=0, error_kinds=set()))
    met = met_by([deaf])
    assert met() is None
    deaf.ended = ENOUGH + 1
    assert met() is False


@pytest.mark.parametrize(
    ("shown", "lies"), [((), 1), (("a",), 0), (("b",), 1)], ids=["nothing", "all", "another"]
)
def test_a_read_inside_an_outage_without_what_was_acknowledged_before_is_a_lie(
    shown: tuple[str, ...], lies: int
):
    events: list[dict[str, Any]] = [
        {
            "type": "invoke",
            "op": 1,
            "f": "append",
            "session": "s",
            "messages": ("a",),
            "time_ns": 1,
        },
        {"type": "ok", "op": 1, "time_ns": 5},
        {"type": "invoke", "op": 2, "f": "history", "session": "s", "time_ns": 12},
        {"type": "ok", "op": 2, "messages": shown, "time_ns": 15},
    ]
    assert len(list(false_answers(events, 10, 20))) == lies


def test_a_recall_that_is_behind_the_log_and_says_so_is_not_kept(clients: ClientPool):
    texts = [message("here.0")["content"]]
    found = {"here.0": {"texts": texts, "behind": 0}, "late.0": {"texts": texts, "behind": 3}}
    said = RecallAfterKill()._finding("append", found, clients)
    assert said.verdict is Verdict.UNKNOWN
    assert "3 records behind" in said.because


class Unseen(CrashAtLine):
    """Of the crash nothing was seen."""

    def proof(self, visits: Visits, strike: Strike) -> str:
        del visits, strike
        return ""


class Seen(CrashAtLine):
    """A process ended."""

    def proof(self, visits: Visits, strike: Strike) -> str:
        del visits, strike
        return "ended by SIGKILL"


@pytest.mark.parametrize(("scenario", "struck"), [(Unseen(), {1: 42}), (Seen(), {})])
def test_a_crash_point_counts_only_where_the_line_was_reached_and_the_crash_was_seen(
    scenario: CrashAtLine, struck: dict[int, int], tmp_path: Path, clients: ClientPool
):
    context = context_in(tmp_path)
    visits = Visits(scenario, context, clients, None)  # type: ignore[arg-type] # nobody is asked
    visits.struck = struck
    whole = crash_plan("append", "s", keyed=False)
    visits._answers[OPS_PER_TASK + len(whole.before) - 1] = {"type": "ok"}
    visit = visits._end(Visit(Point("x.py", 1), whole), Strike(1, 2))
    assert not visit.proven
    assert not context.has_landed("crash-at-line")


def test_a_test_of_the_suite_does_not_pass_where_the_judge_cannot_tell():
    with pytest.raises(pytest.fail.Exception, match="unknown whether durable is kept"):
        judging.judged("durable", Target(open=object), [])
