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

OUTLINES_MAX: Final = 256
"""Sessions whose outlines a store remembers."""
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
        if retention.age_s is not None or marks or any(line.begins for line in added[1:]):
            keep.seen = facts.marks
            keep.marks = thinned(marks, [*lines[gone:], *added], floor, retention.age_s)
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
            self._known.pop(session, None)
            self._known[session] = tuple(lines)
            while len(self._known) > OUTLINES_MAX:
                del self._known[next(iter(self._known))]


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
    never gets its result, behind that: otherwise a session would grow without end.
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
    tied, waiting = _ties(every, marks)
    apart = [at for at in range(wanted, 0, -1) if not tied[at] and not every[at].results]
    closed = [at for at in apart if not waiting[at]]
    begun = [at for at in closed if every[at].begins]
    ways = [begun, closed, apart] if overdue > 0 else [begun]
    return next((way[0] for way in ways if way), 0)


def _ties(lines: Sequence[Line], marks: Sequence[Mark]) -> tuple[list[bool], list[bool]]:
    """For each place: whether a cut before it parts what belongs together; or leaves a call open."""
    steps = [0] * (len(lines) + 1)
    base = lines[0].seq
    calls: dict[str, int] = {}
    pairs = [(max(mark.first - base, 0), mark.last - base) for mark in marks if mark.last > base]
    for at, line in enumerate(lines):
        pairs += [(calls.pop(result), at) for result in line.results if result in calls]
        calls |= dict.fromkeys(line.calls, at)
    for first, last in pairs:
        steps[min(first + 1, len(lines))] += 1
        steps[min(last + 1, len(lines))] -= 1
    opened = min(calls.values(), default=len(lines))
    return [depth > 0 for depth in accumulate(steps)], [at > opened for at in range(len(lines))]


def _written_by(lines: Sequence[Line], marks: Sequence[Mark], time_ms: float) -> int:
    """How many of the lines were written by then."""
    number = max((mark.last for mark in marks if mark.time_ms <= time_ms), default=0)
    return sum(line.seq <= number for line in lines)


def thinned(marks: Sequence[Mark], lines: Sequence[Line], floor: int, age_s: float | None) -> bytes:
    """The marks that are still needed: of appends with several turns, and some that tell an age.

    Those are not closer than a sixteenth of the age; the newest is exact.
    """
    begun = [line.seq for line in lines if line.begins]
    apart_ms = 0.0 if age_s is None else age_s * 1000 / MARKS_MAX
    kept: list[tuple[Mark, bool]] = []
    for mark in marks:
        if mark.last <= floor:
            continue
        ties = bisect_right(begun, mark.last) > bisect_right(begun, mark.first)
        if len(kept) > 1 and not kept[-1][1] and mark.time_ms - kept[-2][0].time_ms < apart_ms:
            kept.pop()
        if ties or age_s is not None:
            kept.append((mark, ties))
    return b"".join(b"%d-%d:%d " % mark for mark, _ in kept)


def read_marks(stored: bytes) -> list[Mark]:
    """The inverse of `Keep.mark`."""
    words = (word.replace(b"-", b":").split(b":") for word in stored.split())
    return [Mark(*map(int, word)) for word in words]
