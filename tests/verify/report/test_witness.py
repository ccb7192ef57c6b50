"""An anomaly carries what its reader saw, what is missing from it, and what happened in between."""

from __future__ import annotations

from typing import Any

from holdfast.verify.report import causes
from holdfast.verify.scenarios import evidence
from holdfast.verify.workload import plan
from tests.verify.report.results import MS, Tape, lost_by_kill, told


def named(anomalies: list[Any], name: str) -> dict[str, Any]:
    return next(anomaly for anomaly in anomalies if anomaly["name"] == name)


def lines(anomaly: dict[str, Any]) -> list[tuple[str, str]]:
    return [(line["id"], line["mark"]) for line in anomaly["conversation"]["lines"]]


def test_a_lost_batch_stands_where_it_should_be_in_what_the_reader_saw():
    lost = named(told(lost_by_kill()), "lost")
    assert lost["message"] == "a.0"
    assert lines(lost) == [
        ("b.0", "seen"), ("b.1", "seen"), ("a.0", "missing"), ("a.1", "missing"), ("d.0", "seen"),
    ]  # fmt: skip
    first = lost["conversation"]["lines"][0]
    assert (first["role"], first["content"]) == ("user", plan.message("b.0")["content"])


def test_faults_between_the_write_and_the_read_are_named_and_others_not():
    tape = lost_by_kill()
    tape.fault("pause", 0.1)
    tape.fault("network", 2000)
    lost = named(told(tape), "lost")
    assert lost["faults"] == [{"name": "kill", "time_ns": 5 * MS, "landed": True}]
    assert lost["faults_between"] == 1
    assert lost["fault"] == "kill"


def test_a_fault_that_was_under_way_all_the_time_is_named():
    """An engine answers again before whoever restarted it says that it is over."""
    tape = Tape()
    tape.fault("restart", 1)
    tape.op("c1", "append", "s", 2, 3, messages=["a.0"])
    tape.op("c2", "history", "s", 4, 5, saw=[])
    tape.fault("restart over", 9)
    lost = named(told(tape, fault="restart"), "lost")
    assert [fault["name"] for fault in lost["faults"]] == ["restart"]
    redis = {"engine": {"kind": "redis", "config": "aof-always"}, "store": "user"}
    assert "swallowed" in causes.likely("durable", redis, lost).cause


def test_writes_at_the_same_time_are_there_and_the_killed_writer_did_not_go_on():
    lost = named(told(lost_by_kill()), "lost")
    assert [one["op"] for one in lost["nearby"]] == [1]
    assert lost["writer_went_on"] is False
    tape = lost_by_kill()
    tape.op("c1", "append", "other", 7, 8, messages=["z.0"])
    assert named(told(tape), "lost")["writer_went_on"] is True


def test_an_operation_that_a_fault_cut_off_has_no_end_but_says_when_it_was_closed():
    tape = Tape()
    tape.op("c1", "append", "s", 0, 1, messages=["a.0"])
    tape.op("c2", "append", "s", 0.5, None, messages=["b.0", "b.1"])
    tape.fault("kill", 5, closes=[2])
    tape.op("c3", "history", "s", 10, 11, saw=["a.0", "b.0"])
    torn = named(told(tape), "torn")
    cut = next(one for one in torn["operations"] if one["op"] == 2)
    assert (cut["completed_ns"], cut["closed_ns"]) == (None, 5 * MS)
    assert lines(torn) == [("a.0", "seen"), ("b.0", "seen"), ("b.1", "missing")]


def test_what_must_not_be_there_is_marked():
    tape = Tape()
    tape.op("c1", "append", "s", 0, 1, messages=["a.0"])
    tape.op("c2", "append", "t", 0, 1, messages=["b.0"])
    tape.op("c1", "history", "s", 2, 3, saw=["a.0", "a.0", "b.0", "nobody"])
    found = told(tape)
    assert lines(named(found, "leak")) == [
        ("a.0", "seen"), ("a.0", "twice"), ("b.0", "extra"), ("nobody", "extra"),
    ]  # fmt: skip
    assert named(found, "phantom")["conversation"]["lines"][-1]["content"] is None
    assert named(found, "duplicate")["conversation"]["mark"] == "twice"


def test_a_long_conversation_is_cut_to_what_tells_it_and_the_rest_is_counted():
    tape = Tape()
    names = [f"m{number}.0" for number in range(60)]
    for at, name in enumerate(names):
        tape.op("c1", "append", "s", at, at + 0.5, messages=[name])
    tape.op("c2", "history", "s", 100, 101, saw=[*names[:20], *names[40:]])
    lost = named(told(tape), "lost")
    talk = lost["conversation"]["lines"]
    assert talk[0] == {"skipped": 16, "missing": 0}
    assert {"skipped": 14, "missing": 14} in talk
    assert [line["id"] for line in talk if line.get("mark") == "missing"] == names[20:26]
    assert [line["id"] for line in talk if line.get("mark") == "seen"][-3:] == names[40:43]
    assert talk[-1] == {"skipped": 17, "missing": 0}


def test_only_the_first_of_each_name_are_told_whole():
    tape = Tape()
    for number in range(9):
        tape.op("c1", "append", f"s{number}", number, number + 0.5, messages=[f"a{number}.0"])
        tape.op("c2", "history", f"s{number}", number + 20, number + 20.5, saw=[])
    found = told(tape)
    assert len(found) == 9
    assert sum("conversation" in anomaly for anomaly in found) == evidence.WHOLE_MAX
    assert all(anomaly["operations"] for anomaly in found)


def test_a_stale_read_is_told_by_the_read_that_lacks_the_message():
    tape = Tape()
    tape.op("c1", "append", "s", 0, 1, messages=["a.0"])
    stale = tape.op("c2", "history", "s", 2, 3, saw=[])
    tape.op("c3", "history", "s", 4, 5, saw=["a.0"])
    found = named(told(tape), "stale")
    assert found["conversation"]["read"] == stale
    assert lines(found) == [("a.0", "missing")]


def test_a_write_is_not_its_own_rival():
    tape = Tape()
    tape.op("c1", "append", "s", 0, None, messages=["a.0"])
    tape.op("c2", "history", "s", 2, 3, saw=["a.0"])
    tape.op("c3", "history", "s", 4, 5, saw=[])
    [lost] = told(tape)
    assert lost["nearby"] == []
