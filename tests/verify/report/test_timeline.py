"""The drawing of a witness: order is true, nothing leaves the picture, nothing covers a name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.verify.report import timeline
from tests.verify.report.results import lost_by_kill, told


@pytest.fixture
def lost() -> dict[str, Any]:
    found = next(anomaly for anomaly in told(lost_by_kill()) if anomaly["name"] == "lost")
    return dict(found)


def drawn(anomaly: dict[str, Any]) -> timeline.Timeline:
    drawing = timeline.draw(anomaly)
    assert drawing is not None
    return drawing


def test_clients_are_rows_operations_bars_and_the_fault_a_line_between(lost: dict[str, Any]):
    drawing = drawn(lost)
    assert [sublog.name for sublog in drawing.lanes] == ["c2", "c1", "c3"]
    by_lane = {bar.y: bar.f for bar in drawing.bars}
    assert [by_lane[sublog.y] for sublog in drawing.lanes] == ["append", "append", "history"]
    [line] = drawing.faults
    append, read = drawing.bars[1], drawing.bars[2]
    assert append.x + append.width < line.x < read.x
    assert line.name == "⚡kill"


def test_the_message_is_written_in_one_row_and_struck_out_in_the_other(lost: dict[str, Any]):
    notes = {note.mark: note for note in drawn(lost).notes}
    assert notes["written"].text == notes["missing"].text == "a.0"
    assert notes["written"].y < notes["missing"].y


def test_what_never_ended_reaches_the_edge_and_what_was_cut_off_does_not(lost: dict[str, Any]):
    read = lost["operations"][-1]
    open_end = read | {"completed_ns": None, "closed_ns": None, "status": "info"}
    bar = drawn(lost | {"operations": [lost["operations"][0], open_end]}).bars[-1]
    assert bar.open
    assert bar.x + bar.width == pytest.approx(100)
    closed = open_end | {"closed_ns": read["completed_ns"]}
    bar = drawn(lost | {"operations": [lost["operations"][0], closed]}).bars[-1]
    assert bar.closed
    assert bar.x + bar.width < 98


def test_places_keep_the_order_of_time_whatever_the_gaps():
    chance = random.Random(3)
    for _ in range(200):
        times = [chance.randrange(10 ** chance.randint(1, 12)) for _ in range(20)]
        axis = timeline.Axis(times)
        places = [axis.at(time) for time in sorted(set(times))]
        assert places == sorted(places)
        assert places[0] == timeline.LEFT
        assert places[-1] <= timeline.RIGHT


def test_names_of_faults_close_together_do_not_cover_each_other(lost: dict[str, Any]):
    begin = lost["operations"][0]["invoked_ns"]
    faults = [{"name": "connections", "time_ns": begin + n, "landed": True} for n in range(1, 4)]
    drawing = drawn(lost | {"faults": faults})
    assert len({line.label_y for line in drawing.faults}) == 3
    assert max(line.label_y for line in drawing.faults) < drawing.top


def test_the_end_of_a_fault_is_not_called_a_fault(lost: dict[str, Any]):
    over = {"name": "kill over", "time_ns": lost["faults"][0]["time_ns"] + 1, "landed": True}
    lines = drawn(lost | {"faults": [*lost["faults"], over]}).faults
    assert [(line.name, line.over) for line in lines] == [("⚡kill", False), ("kill over", True)]


def test_every_operation_is_told_in_words_with_the_number_of_its_bar(lost: dict[str, Any]):
    steps = timeline.steps_of(lost)
    assert (
        [step["number"] for step in steps] == [bar.number for bar in drawn(lost).bars] == [1, 2, 3]
    )
    assert steps[1]["what"] == "appends 2 messages: acknowledged after 1.5\N{NO-BREAK SPACE}ms"
    assert steps[2]["what"].startswith("reads everything: answered with 3 messages")
    assert steps[0]["nearby"]


@pytest.mark.parametrize(
    ("ns", "words"),
    [
        (0, "0 µs"),
        (1_500, "2 µs"),
        (1_500_000, "1.5 ms"),
        (880_400_000, "880 ms"),
        (10**10, "10 s"),
    ],
)
def test_a_duration_is_in_the_unit_that_a_person_would_choose(ns: int, words: str):
    assert timeline.duration(ns).replace("\N{NO-BREAK SPACE}", " ") == words


def test_an_anomaly_without_operations_has_no_drawing():
    assert timeline.draw({"name": "lost"}) is None
