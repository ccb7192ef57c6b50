"""Crash states of one run: whoever syncs before the ack holds in all of them, others are caught."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.history import Event, Header, write_history
from holdfast.verify.judge import Verdict
from holdfast.verify.power.trace import Recording
from holdfast.verify.power.trace.disk_model import Crash, Loss
from holdfast.verify.power.trace.instants import Instant
from holdfast.verify.power.trace.tree import Base, Tree
from holdfast.verify.result import CheckResult
from holdfast.verify.scenarios.base import ScenarioContext
from holdfast.verify.scenarios.explore import PowerExplore, Tour, Visited
from holdfast.verify.scenarios.states import Seen, Story, Visitor
from holdfast.verify.spec import TargetSpec, view_of
from tests.verify.check.checking import Notes, tell

FILES = "tests.verify.check.files"


def explore(
    target: str,
    *,
    engine: str | None = None,
    config: str | None = None,
    promises: tuple[str, ...] = ("durable",),
) -> CheckResult:
    options = CheckOptions(
        target=target,
        engine=engine,
        config=config,
        seed=5,
        faults=("power-explore",),
        promises=promises,
        time_s=4,
    )
    return check(options, Notes())


@pytest.mark.parametrize("target", ["sqlite", "redis"])
def test_who_syncs_before_the_ack_holds_in_every_state(target: str):
    result = explore(target)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    evidence = result.promises["durable"].evidence["scenarios"]["power-explore"]
    assert evidence["states"] == result.faults["power-explore"].landed >= 5
    assert evidence["dropped_bytes"] > 0  # something was under way, and lost
    assert set(evidence["losses"]) > {"dropped"}


@pytest.mark.parametrize(
    ("target", "engine", "config"),
    [
        ("redis", None, "aof-everysec"),
        (f"{FILES}:sync_off", "sqlite", None),
        (f"{FILES}:unsynced_rename", "sqlite", None),
    ],
)
def test_who_does_not_is_caught_and_the_state_is_told(
    target: str, engine: str | None, config: str | None
):
    result = explore(target, engine=engine, config=config)
    durable = result.promises["durable"]
    assert durable.verdict is Verdict.BROKEN, tell(result)
    assert "crash states break it" in durable.because
    states = durable.evidence["scenarios"]["power-explore"]["states_broken"]
    assert {"at_ms", "when", "loss", "seed", "acknowledged"} <= states[0].keys()
    assert result.exit_code == 1


def test_half_of_a_large_batch_that_was_being_written_is_no_turn():
    result = explore(f"{FILES}:json_lines", engine="sqlite", promises=("durable", "atomic"))
    assert result.promises["atomic"].verdict is Verdict.BROKEN, tell(result)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)


def test_data_that_are_kept_elsewhere_leave_the_verdict_unknown():
    result = explore(f"{FILES}:elsewhere", engine="sqlite")
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "elsewhere" in result.promises["durable"].because


def test_an_engine_that_does_not_start_on_a_state_has_lost_it_and_says_why(tmp_path: Path):
    with start_engine("redis", config="aof-always") as engine:
        spec = TargetSpec("redis", engine=view_of(engine))
    history = tmp_path / "history.jsonl"
    write_history(history, Header("redis"), [])
    story = Story(Recording(Base(tmp_path), {}, []), history, spec, "data")
    with Visitor(story, tmp_path / "visitor", timeout_s=20) as visitor:
        sound, damaged = tmp_path / "sound", tmp_path / "damaged"
        (sound / "data").mkdir(parents=True)
        assert visitor.visit(sound, ["s"]).reads == [{"session": "s", "messages": []}]
        log = damaged / "data" / "appendonlydir"
        log.mkdir(parents=True)
        (log / "appendonly.aof.manifest").write_text(
            "file appendonly.aof.1.incr.aof seq 1 type i\n"
        )
        (log / "appendonly.aof.1.incr.aof").write_text("no command at all\r\n" * 9)
        seen = visitor.visit(damaged, ["s"])
        assert "does not start any more" in seen.lost
        assert "Bad file format" in seen.lost
        again = tmp_path / "again"
        (again / "data").mkdir(parents=True)
        assert visitor.visit(again, []).lost == ""


def test_what_a_store_still_does_in_a_state_that_was_read_is_no_fault_of_the_kit(tmp_path: Path):
    """A thread of it made or removed files while the state was cleared away: the check ended there."""

    class Busy:
        def visit(self, state: Path, _sessions: object) -> Seen:
            shutil.rmtree(state)
            return Seen([])

    history = tmp_path / "history.jsonl"
    write_history(history, Header("sqlite"), [])
    story = Story(Recording(Base(tmp_path), {}, []), history, TargetSpec("sqlite"), "data")
    tour = Tour(ScenarioContext, PowerExplore(), story, tmp_path)  # type: ignore[arg-type]
    tour._visitors.put(Busy())  # type: ignore[arg-type]
    tour._room.acquire()
    (state := tmp_path / "state").mkdir()
    instant, crash = Instant(5, Loss.DROPPED, "then"), Crash(5, Loss.DROPPED, Tree(), {}, 0)
    assert tour._one(instant, crash, state).broken == []


def judged_at(ends_ns: list[int], tmp_path: Path) -> list[Verdict]:
    """What is said of a run with one append, acknowledged at 20, of which these states are read."""
    history = tmp_path / f"{len(ends_ns)}.jsonl"
    asked = Event("invoke", 10, op=1, process="c1", f="append", session="s", messages=("m",))
    events = [asked, Event("ok", 20, op=1)]
    write_history(history, Header("sqlite"), events)
    story = Story(Recording(Base(tmp_path), {}, []), history, TargetSpec("sqlite"), "data")
    tour = Tour(ScenarioContext, PowerExplore(), story, tmp_path)  # type: ignore[arg-type]
    for at_ns in ends_ns:
        instant = Instant(at_ns, Loss.DROPPED, "then")
        crash = Crash(at_ns, Loss.DROPPED, Tree(), {}, 0)
        shown = [{"session": "s", "messages": ["m"] if at_ns > 20 else []}]
        visited = Visited(instant, crash, story.until(at_ns))
        tour.visited.append(tour._judge(visited, Seen(shown)))
    return [finding.verdict for finding in tour.findings()]


def test_a_state_before_the_first_ack_says_nothing_and_takes_nothing_away(tmp_path: Path):
    assert judged_at([15, 25], tmp_path) == [Verdict.KEPT, Verdict.KEPT]
    assert judged_at([15], tmp_path) == [Verdict.UNKNOWN, Verdict.UNKNOWN]


def test_a_read_that_was_stale_before_the_crash_is_not_the_doing_of_a_crash_state(tmp_path: Path):
    """The message is durable: only a cache did not show it, and then it was forgotten."""
    history = tmp_path / "stale.jsonl"
    session: dict[str, Any] = {"process": "c1", "session": "s"}
    events = [
        Event("invoke", 10, op=1, f="append", messages=("m",), **session), Event("ok", 20, op=1),
        Event("invoke", 30, op=2, f="history", **session), Event("ok", 40, op=2, messages=()),
        Event("invoke", 50, op=3, f="append", messages=("n",), **session), Event("ok", 60, op=3),
        Event("invoke", 70, op=4, f="forget", **session), Event("ok", 80, op=4),
    ]  # fmt: skip
    write_history(history, Header("sqlite"), events)
    story = Story(Recording(Base(tmp_path), {}, []), history, TargetSpec("sqlite"), "data")
    _, sound = story.judge(90, story.until(90), [{"session": "s", "messages": []}])
    assert sound.roots == (), sound.roots
    _, gone = story.judge(65, story.until(65), [{"session": "s", "messages": ["n"]}])
    assert [root.promise for root in gone.roots] == ["durable"]
    assert max(gone.roots[0].witness) >= 1_000_000_000
