"""What an append cuts off under a `Retention`: which messages, decided on what the engine says.

Only whole turns go, so messages are looked at, which no engine can do. That is safe: a number names
one message for ever, so what may go stays so, whatever others write meanwhile.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple

from holdfast import codec
from holdfast.commands import Append, Facts, Keep, Read, Slice, StatSession, Written
from holdfast.errors import StoredDataError
from holdfast.model import Retention, SessionState
from holdfast.runner import Steps
from holdfast.turns import calls_of, results_of

LINES_MAX: Final = 100_000
"""Lines of outlines that a store remembers, some 20 MB: of 10,000 sessions ten each, or of 100 a thousand."""
PAGE: Final = 1000
CUT_MAX: Final = 10_000
"""Messages that one append cuts off; the next one goes on."""
MARKS_MAX: Final = 16
_ANSWERS: Final = ("assistant", "tool", "function")


@dataclass(frozen=True, slots=True)
class Line:
    """What matters of a message: its number, whether a turn begins with it, calls and results."""

    seq: int
    begins: bool
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


class Mark(NamedTuple):
    """An append: its numbers, and when it was over."""

    first: int
    last: int
    time_ms: int


class Outlines:
    """What a store knows of its sessions. Threads may share it: an outline is replaced as a whole."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Line, ...]] = {}
        self._held = 0
        self._changing = threading.Lock()

    def append(self, command: Append, retention: Retention) -> Steps[Written]:
        """An append that cuts off what is not to be kept."""
        facts: Facts = yield StatSession(command.session)
        lines = yield from self._lines(command.session, facts)
        added = [line_of(facts.last + at, record) for at, record in enumerate(command.records, 1)]
        marks = read_marks(facts.marks)
        gone = cut_upto(lines, added, retention, marks, facts.now_ms)
        floor = lines[gone - 1].seq if gone else facts.floor
        keep = Keep(floor if gone else 0)
        kept = [*lines[gone:], *added]
        own = (added[0].seq, added[-1].seq)
        if retention.age_s is not None or marks or is_whole(*own, turns_of(kept), retention):
            keep.seen = facts.marks
            keep.marks = thinned(marks, kept, floor, retention)
        written: Written = yield replace(command, keep=keep)
        if not written.repeated and written.first == facts.last + 1:
            lines += added
        self._note(command.session, [line for line in lines if line.seq > floor])
        return written

    def _lines(self, session: bytes, facts: Facts) -> Steps[list[Line]]:
        """The outline of all that is visible; what is not known yet is read."""
        if facts.state is not SessionState.LIVE:
            return []
        known = self._known.get(session, ())
        if known and known[-1].seq > facts.last:  # an older copy of the database was put in place
            known = ()
        lines = [line for line in known if line.seq > facts.floor]
        if lines and lines[0].seq != facts.floor + 1:
            lines = []
        upto = lines[-1].seq if lines else facts.floor
        while upto < facts.last:
            page: Slice = yield Read(session, PAGE, facts.last + 1, upto)
            if not page.rows:
                break
            lines += [line_of(seq, record) for seq, record in page.rows]
            upto = lines[-1].seq
        return lines if lines and lines[-1].seq == facts.last else []

    def _note(self, session: bytes, lines: Sequence[Line]) -> None:
        with self._changing:
            self._drop(session)
            self._known[session] = tuple(lines)
            self._held += len(lines) + 1
            while self._held > LINES_MAX:
                self._drop(next(iter(self._known)))

    def _drop(self, session: bytes) -> None:
        if session in self._known:
            self._held -= len(self._known.pop(session)) + 1


def line_of(seq: int, record: bytes) -> Line:
    """The line of a record; one that cannot be read belongs to what is before it."""
    try:
        message = codec.decode(record, seq)
    except StoredDataError:
        return Line(seq, begins=False)
    results = tuple(results_of(message))
    begins = message.role not in _ANSWERS and not results
    return Line(seq, begins, tuple(calls_of(message)), results)


def cut_upto(
    lines: Sequence[Line],
    added: Sequence[Line],
    retention: Retention,
    marks: Sequence[Mark],
    now_ms: int,
) -> int:
    """How many of the lines go. What is being added stays, and no append is cut in two.

    Where no turn begins for long (an agent at work), it may be cut within a turn, and where a call
    never gets its result, behind that; within an append only where calls and appends overlap all the
    way: otherwise a session would grow without end.
    """
    wanted = overdue = 0
    if retention.last is not None:
        wanted = len(lines) + len(added) - retention.last
        overdue = wanted - retention.last
    if retention.age_s is not None:
        age_ms = retention.age_s * 1000
        wanted = max(wanted, _written_by(lines, marks, now_ms - age_ms))
        overdue = max(overdue, _written_by(lines, marks, now_ms - 2 * age_ms))
    wanted = min(wanted, len(lines), CUT_MAX)
    if wanted <= 0:
        return 0
    every = [*lines, *added]
    pairs, waiting = _calls(every)
    parted = _within(every, pairs)
    halved = _within(
        every, [(mark.first - every[0].seq, mark.last - every[0].seq) for mark in marks]
    )
    places = [at for at in range(len(lines), 0, -1) if not parted[at] and not every[at].results]
    apart = [at for at in places if not halved[at]] or places
    closed = [at for at in apart if not waiting[at]]
    begun = [at for at in closed if every[at].begins and not halved[at]]
    ways = [begun, closed, apart] if overdue > 0 else [begun]
    return next((at for way in ways for at in way if at <= wanted), 0)


def _calls(lines: Sequence[Line]) -> tuple[list[tuple[int, int]], list[bool]]:
    """The places of each call and its result; and for each place, whether a call before it is open."""
    calls: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for at, line in enumerate(lines):
        pairs += [(calls.pop(result), at) for result in line.results if result in calls]
        calls |= dict.fromkeys(line.calls, at)
    opened = min(calls.values(), default=len(lines))
    return pairs, [at > opened for at in range(len(lines))]


def _within(lines: Sequence[Line], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """For each place, whether a cut before it parts the two ends of a span."""
    steps = [0] * (len(lines) + 1)
    for first, last in spans:
        if last > 0:
            steps[min(max(first, 0) + 1, len(lines))] += 1
            steps[min(last + 1, len(lines))] -= 1
    return [depth > 0 for depth in accumulate(steps)]


def _written_by(lines: Sequence[Line], marks: Sequence[Mark], time_ms: float) -> int:
    """How many of the lines were written by then."""
    number = max((mark.last for mark in marks if mark.time_ms <= time_ms), default=0)
    return sum(line.seq <= number for line in lines)


def turns_of(lines: Sequence[Line]) -> list[int]:
    """The numbers with which turns begin; what is left of one is the first."""
    return [line.seq for at, line in enumerate(lines) if line.begins or not at]


def is_whole(first: int, last: int, turns: Sequence[int], retention: Retention) -> bool:
    """Whether a cut might fall into an append: a turn begins in it, or its turn is longer than is kept."""
    if first == last:
        return False
    at = bisect_right(turns, first)
    is_long = retention.last is not None and at > 0 and last - turns[at - 1] >= retention.last
    return is_long or at < bisect_right(turns, last)


def thinned(
    marks: Sequence[Mark], lines: Sequence[Line], floor: int, retention: Retention
) -> bytes:
    """The marks that are still needed: of appends that are whole, and some that tell an age.

    Those are not closer than a sixteenth of the age; the newest is exact.
    """
    turns, age_s = turns_of(lines), retention.age_s
    apart_ms = 0.0 if age_s is None else age_s * 1000 / MARKS_MAX
    kept: list[tuple[Mark, bool]] = []
    for mark in marks:
        if mark.last <= floor:
            continue
        ties = is_whole(mark.first, mark.last, turns, retention)
        if len(kept) > 1 and not kept[-1][1] and mark.time_ms - kept[-2][0].time_ms < apart_ms:
            kept.pop()
        if ties or age_s is not None:
            kept.append((mark, ties))
    return b"".join(b"%d-%d:%d " % mark for mark, _ in kept)


def read_marks(stored: bytes) -> list[Mark]:
    """The inverse of `Keep.mark`."""
    words = (word.replace(b"-", b":").split(b":") for word in stored.split())
    return [Mark(*map(int, word)) for word in words]
