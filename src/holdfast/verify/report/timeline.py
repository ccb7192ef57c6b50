"""A witness as a drawing: clients are rows, operations bars, faults vertical lines. Pure.

Places along the axis are percentages, so that the drawing fits a phone and a wall alike while its
words keep their size. Gaps are shortened by logarithm (an append takes a millisecond, an outage
seconds); the order is true, and so is every time that is written down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

LEFT: Final = 1.5
RIGHT: Final = 98.0
OPEN_PERCENT: Final = 6.0
"""Room at the end for what never ended."""
FAULT_ROW_PX: Final = 18
LANE_PX: Final = 50
NOTE_PX: Final = 17
AXIS_PX: Final = 26
CHAR_PERCENT: Final = 2.1
"""The width of a character on a phone."""
FAULT_ROWS_MAX: Final = 4
TICK_PERCENT: Final = 19.0
NOTE_CHARS_MAX: Final = 28
_NS_PER_US: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_NBSP: Final = "\N{NO-BREAK SPACE}"
_EDGE_PERCENT: Final = 55.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One operation, from invoked to completed. `open`: nobody knows when, or whether, it ended."""

    number: int
    f: str
    status: str
    x: float
    width: float
    y: int
    open: bool
    closed: bool
    nearby: bool
    title: str


@dataclass(frozen=True, slots=True)
class Note:
    """A message under a bar: written, shown, or missing."""

    x: float
    y: int
    anchor: str
    text: str
    f: str
    mark: str
    odd: bool
    """Whether it stands on a lane with an odd number, for what is behind it."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One client."""

    name: str
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class FaultLine:
    """One fault, where it stands in time; `over` where it is the end of one."""

    x: float
    label_y: int
    anchor: str
    name: str
    over: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """A time on the axis, since the first operation began."""

    x: float
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that is drawn. `top` is where the lanes begin."""

    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    notes: tuple[Note, ...]
    faults: tuple[FaultLine, ...]
    ticks: tuple[Tick, ...]
    top: int
    height: int
    title: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """What its legend must explain."""
        kinds = dict.fromkeys(bar.f for bar in self.bars)
        if any(bar.open or bar.closed for bar in self.bars):
            kinds["unknown"] = None
        kinds |= {"nearby": None} if any(bar.nearby for bar in self.bars) else {}
        return (*kinds, *(["fault"] if self.faults else []))


def draw(anomaly: Mapping[str, Any]) -> Timeline | None:
    """The drawing of one anomaly; None where it has no operations."""
    steps = _steps(anomaly)
    if not steps:
        return None
    faults = list(anomaly.get("faults") or ())
    axis = Axis(_times(steps, faults))
    lines, rows = _fault_lines(axis, faults)
    top = 6 + rows * FAULT_ROW_PX
    notes_of = {step["op"]: _note_of(anomaly, step) for step in steps if not step["nearby"]}
    lanes = _lanes(steps, notes_of, top)
    bottom = lanes[-1].y + lanes[-1].height
    return Timeline(
        lanes=lanes,
        bars=tuple(_bar(axis, step, lanes) for step in steps),
        notes=tuple(_notes(axis, steps, notes_of, lanes)),
        faults=tuple(lines),
        ticks=tuple(_ticks(axis)),
        top=top,
        height=bottom + AXIS_PX,
        title=_title(anomaly, lanes, lines),
    )


class Axis:
    """From times to places: every later time stands further right."""

    def __init__(self, times_ns: Iterable[int]) -> None:
        self.times = sorted(set(times_ns))
        weights = [1 + math.log10(1 + (b - a) / _NS_PER_US) for a, b in pairwise(self.times)]
        scale = (RIGHT - OPEN_PERCENT - LEFT) / (sum(weights) or 1)
        self._places = {self.times[0]: LEFT}
        for (before, after), weight in zip(pairwise(self.times), weights, strict=True):
            self._places[after] = self._places[before] + weight * scale

    def at(self, time_ns: int) -> float:
        """The place of one of its times, in percent."""
        return round(self._places[time_ns], 2)


def duration(ns: int) -> str:
    """In the unit that a person would choose."""
    if ns < _NS_PER_MS:
        return f"{ns / _NS_PER_US:.0f}{_NBSP}µs"
    if ns < _NS_PER_S:
        return f"{ns / _NS_PER_MS:.3g}{_NBSP}ms"
    return f"{ns / _NS_PER_S:.3g}{_NBSP}s"


def _since(begin_ns: int, time_ns: int) -> str:
    return "0" if time_ns <= begin_ns else f"+{duration(time_ns - begin_ns)}"


def short(text: str, chars_max: int = NOTE_CHARS_MAX) -> str:
    """The beginning and the end of a long id: both tell it apart."""
    if len(text) <= chars_max:
        return text
    half = (chars_max - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _steps(anomaly: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations of the witness, then those at the same time, numbered in the order of time."""
    found = [{**one, "nearby": False} for one in anomaly.get("operations") or ()]
    found += [{**one, "nearby": True} for one in anomaly.get("nearby") or ()]
    found.sort(key=lambda step: step["invoked_ns"])
    return [{**step, "number": number} for number, step in enumerate(found, 1)]


def steps_of(anomaly: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same operations in words, numbered as in the drawing."""
    steps = _steps(anomaly)
    return [
        {
            "number": step["number"],
            "nearby": step["nearby"],
            "f": step["f"],
            "who": str(step["process"]),
            "what": _words(step),
            "when": _since(steps[0]["invoked_ns"], step["invoked_ns"]),
            "op": step["op"],
        }
        for step in steps
    ]


_ENDS: Final[Mapping[tuple[str, str], str]] = {
    ("append", "ok"): "acknowledged",
    ("forget", "ok"): "acknowledged",
    ("history", "ok"): "answered",
}


def _words(step: Mapping[str, Any]) -> str:
    count = len(step["messages"])
    many = f"{count} message{'' if count == 1 else 's'}"
    limit = step.get("limit")
    asked = {
        "append": f"appends {many}",
        "history": "reads everything" if limit is None else f"reads the newest {limit}",
        "forget": "forgets the session",
    }.get(step["f"], str(step["f"]))
    if step["status"] == "fail":
        return f"{asked}: an error says that it was not done"
    if step["completed_ns"] is None:
        closed = ", cut off by a fault" if step.get("closed_ns") else ""
        return f"{asked}: outcome unknown{closed}"
    end = _ENDS.get((step["f"], step["status"]), "ended")
    took = duration(step["completed_ns"] - step["invoked_ns"])
    got = f" with {many}" if step["f"] == "history" else ""
    return f"{asked}: {end}{got} after {took}"


def _end(step: Mapping[str, Any]) -> int | None:
    ended: int | None = step["completed_ns"] or step.get("closed_ns")
    return ended


def _times(steps: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]]) -> list[int]:
    ends = [_end(step) for step in steps]
    return [
        *(step["invoked_ns"] for step in steps),
        *(end for end in ends if end is not None),
        *(fault["time_ns"] for fault in faults),
    ]


def _lanes(
    steps: Sequence[Mapping[str, Any]], notes: Mapping[int, tuple[str, str] | None], top: int
) -> tuple[Lane, ...]:
    lanes: list[Lane] = []
    y = top
    for name in dict.fromkeys(str(step["process"]) for step in steps):
        noted = sum(str(s["process"]) == name and bool(notes.get(s["op"])) for s in steps)
        lanes.append(Lane(name, y, LANE_PX + noted * NOTE_PX))
        y += lanes[-1].height
    return tuple(lanes)


def _bar(axis: Axis, step: Mapping[str, Any], lanes: Sequence[Lane]) -> Bar:
    end = _end(step)
    x = axis.at(step["invoked_ns"])
    return Bar(
        number=step["number"],
        f=step["f"],
        status=step["status"],
        x=x,
        width=round((RIGHT + 2 if end is None else axis.at(end)) - x, 2),
        y=_lane(step, lanes).y,
        open=end is None,
        closed=step["completed_ns"] is None and end is not None,
        nearby=step["nearby"],
        title=f"{step['process']} {_words(step)}",
    )


def _lane(step: Mapping[str, Any], lanes: Sequence[Lane]) -> Lane:
    return next(lane for lane in lanes if lane.name == str(step["process"]))


def _note_of(anomaly: Mapping[str, Any], step: Mapping[str, Any]) -> tuple[str, str] | None:
    """What to write under a bar, and how: the message in question as this operation had it."""
    message = anomaly.get("message")
    if step["f"] == "forget" or not message or step["status"] == "fail":
        return None
    has = message in step["messages"]
    conversation = anomaly.get("conversation") or {}
    if step["f"] == "append":
        return (message, "written") if has else None
    if step["op"] != conversation.get("read"):
        return (message, "shown") if has else None
    return message, "shown" if conversation["mark"] == "seen" else conversation["mark"]


def _notes(
    axis: Axis,
    steps: Sequence[Mapping[str, Any]],
    notes: Mapping[int, tuple[str, str] | None],
    lanes: Sequence[Lane],
) -> Iterable[Note]:
    taken: dict[str, int] = {}
    for step in steps:
        note = None if step["nearby"] else notes.get(step["op"])
        if note is not None:
            lane = _lane(step, lanes)
            row = taken[lane.name] = taken.get(lane.name, 0) + 1
            x = axis.at(step["invoked_ns"])
            anchor = "start" if x < _EDGE_PERCENT else "end"
            place = x if anchor == "start" else min(x + 8, RIGHT)
            y = lane.y + LANE_PX + row * NOTE_PX - 7
            odd = lanes.index(lane) % 2 == 0
            yield Note(place, y, anchor, short(note[0]), step["f"], note[1], odd)


def _fault_lines(axis: Axis, faults: Sequence[Mapping[str, Any]]) -> tuple[list[FaultLine], int]:
    """The lines, and how many rows their names need so that none covers another."""
    ends: list[float] = []
    lines = []
    for fault in faults:
        over = is_over(fault)
        name = ("" if over else "⚡") + str(fault["name"])
        name += "" if fault.get("landed", True) else " (missed)"
        x = axis.at(fault["time_ns"])
        anchor = _anchor(x)
        half = len(name) * CHAR_PERCENT / 2
        begin = {"start": x, "middle": x - half, "end": x - 2 * half}[anchor]
        row = next((at for at, end in enumerate(ends) if end < begin), len(ends))
        row = min(row, FAULT_ROWS_MAX - 1)
        ends[row : row + 1] = [begin + 2 * half + 1]
        lines.append(FaultLine(x, 6 + row * FAULT_ROW_PX, anchor, name, over))
    return lines, len(ends)


def is_over(fault: Mapping[str, Any]) -> bool:
    """Whether this is not a fault but the end of one."""
    return str(fault["name"]).endswith(" over")


def _anchor(x: float) -> str:
    low, high = 15.0, 85.0
    return "start" if x < low else "end" if x > high else "middle"


def _ticks(axis: Axis) -> Iterable[Tick]:
    """Times that leave each other room to be read, the first and the last among them."""
    begin = axis.times[0]
    last = axis.times[-1]
    places = [begin]
    for time in axis.times[1:-1]:
        room = axis.at(time) - axis.at(places[-1]) > TICK_PERCENT
        if room and axis.at(last) - axis.at(time) > TICK_PERCENT:
            places.append(time)
    for time in dict.fromkeys([*places, last]):
        yield Tick(axis.at(time), _anchor(axis.at(time)), _since(begin, time))


def _title(anomaly: Mapping[str, Any], lanes: Sequence[Lane], faults: Sequence[FaultLine]) -> str:
    names = ", ".join(lane.name for lane in lanes)
    landed = ", ".join(dict.fromkeys(line.name for line in faults if not line.over))
    fault = f" Faults between: {landed}." if landed else ""
    return f"Timeline of {anomaly.get('name', 'it')}: operations of {names}.{fault}"
