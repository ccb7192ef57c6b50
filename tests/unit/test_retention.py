"""What retention cuts off, from the definition: a simple model of every cut, in any session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Durability, Message, Retention, SessionState, codec, retention
from holdfast.commands import Append, Facts, Read, Slice, StatSession, Written
from holdfast.retention import Line, Mark, Outlines, cut_upto, read_marks, thinned
from holdfast.runner import run

NOW_MS = 1_000_000


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[Line], list[Mark]]:
    """Messages in appends, with calls and results anywhere, of which some never match."""
    lines: list[Line] = []
    marks: list[Mark] = []
    for at_ms in range(draw(st.integers(1, 12))):
        first = len(lines) + 1
        for _ in range(draw(st.integers(1, 3))):
            kind = draw(st.sampled_from(["user", "user", "answer", "call", "result"]))
            name = (draw(st.sampled_from("abc")),)
            lines.append(
                Line(
                    len(lines) + 1,
                    kind == "user",
                    name if kind == "call" else (),
                    name if kind == "result" else (),
                )
            )
        marks.append(Mark(first, len(lines), at_ms))
    return lines, marks


def parted(lines: list[Line], upto: int) -> bool:
    """Whether a result is kept whose call is cut off: matched one by one, in order."""
    calls: dict[str, int] = {}
    for line in lines:
        for result in line.results:
            made = calls.pop(result, None)
            if made is not None and made <= upto < line.seq:
                return True
        calls.update(dict.fromkeys(line.calls, line.seq))
    return False


def is_halved(marks: list[Mark], upto: int) -> bool:
    return any(mark.first <= upto < mark.last for mark in marks)


@settings(max_examples=400, deadline=None)
@given(sessions(), st.integers(1, 8))
def test_no_cut_parts_what_belongs_together_or_keeps_too_few(
    session: tuple[list[Line], list[Mark]], last: int
) -> None:
    lines, marks = session
    *_, newest = marks
    before = [line for line in lines if line.seq < newest.first]
    upto = cut_upto(before, lines[len(before) :], Retention(last=last), marks, NOW_MS)
    assert 0 <= upto <= len(before)
    if upto:
        assert len(lines) - upto >= last
        assert not parted(lines, upto)
        if is_halved(marks, upto):
            others = [at for at in range(1, len(before) + 1) if not lines[at].results]
            assert all(is_halved(marks, at) or parted(lines, at) for at in others), (
                "an append cut in two"
            )
            assert len(lines) > 2 * last
        assert not lines[upto].results
        assert lines[upto].begins or len(lines) > 2 * last


def test_marks_come_back_as_they_were_and_are_bounded() -> None:
    marks = [Mark(number, number, 10 * number) for number in range(1, 1001)]
    lines = [Line(number, begins=True) for number in range(1, 1001)]
    kept = read_marks(thinned(marks, lines, 0, Retention(age_s=10.0)))
    assert len(kept) <= 2 + 16
    assert kept[-1] == marks[-1], "the newest is exact"
    assert set(kept) <= set(marks)
    for mark in marks:  # each message is known to be written at most a sixteenth of the age late
        known_ms = min(one.time_ms for one in kept if one.last >= mark.last)
        assert 0 <= known_ms - mark.time_ms <= 10_000 / 16
    assert thinned(marks, lines, 1000, Retention(age_s=10.0)) == b""
    assert thinned([Mark(1, 2, 5), Mark(3, 3, 6)], lines, 0, Retention(last=9)) == b"1-2:5 "


def reads(outlines: Outlines, sessions: int) -> int:
    """How many of so many sessions of ten messages are read before something is appended to each."""
    record = codec.encode(Message("user", "x"))
    asked: list[Any] = []

    def reply(command: Any) -> Any:
        asked.append(command)
        if isinstance(command, StatSession):
            return Facts(SessionState.LIVE, 10, 10, 10)
        if isinstance(command, Read):
            return Slice(SessionState.LIVE, 10, [(seq, record) for seq in range(1, 11)])
        return Written(11, 11, Durability.DISK, repeated=True)

    for number in range(sessions):
        command = Append(b"%d" % number, [record])
        run(outlines.append(command, Retention(last=20)), reply)
    return sum(isinstance(command, Read) for command in asked)


def test_outlines_of_thousands_of_sessions_are_remembered_and_not_of_any_number(
    monkeypatch: pytest.MonkeyPatch,
):
    outlines = Outlines()
    assert reads(outlines, 2000) == 2000
    assert reads(outlines, 2000) == 0
    monkeypatch.setattr(retention, "LINES_MAX", 110)
    few = Outlines()
    assert reads(few, 10) == 10
    assert reads(few, 10) == 0
    assert reads(few, 11) + reads(few, 11) > 11
