"""What follows only from several operations together, by bounds that spread along the order.

Asked where no single operation contradicts a read: what a read that is wrong shows would make the
bounds wrong too. A sentence names the operations that no order explains, and one fact of the read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.effect_times import Bounds, make_bounds
from holdfast.verify.judge.facts import Facts
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.forgotten import Soonest
from holdfast.verify.judge.peaks import Peaks


def check_derived(facts: Facts, found: Findings) -> None:
    """Report what no order explains although each read by itself could be right."""
    case = facts.case
    bounds = make_bounds(facts)
    _check_order(case, bounds, found)
    waiting = sorted(case.appends, key=lambda append: bounds.earliest[append].ns)
    alive = Peaks([_alive(bounds, append) for append in waiting])
    lacking = {read: list(_missing(bounds, read, waiting, alive, facts)) for read in case.reads}
    windows = facts.wrong_windows(lacking)
    for read in sorted(case.reads, key=lambda read: read.inv):
        _check_neighbours(facts, bounds, read, found)
        for append in lacking[read]:
            spare = _spare(bounds, read, append)
            witness = (*bounds.latest[append].ops, read.number)
            # What stands between others that a window shows is missing for no other window.
            gap = found.has("reorder", append.ids[-1])
            lean = "snapshot" if read in windows and not gap else ""
            _report_missing(facts, read, append, found, witness, spare, lean)
    if not case.forgets:
        _check_beginnings(facts, bounds, found)
    _check_forgotten(case, bounds, found)


def _check_order(case: Case, bounds: Bounds, found: Findings) -> None:
    if bounds.cycle:
        reads = [bounds.before[b][a] for a, b in pairwise(bounds.cycle)]
        first, second = bounds.cycle[:2]
        because = f"read {reads[0].number} shows {first.ids[-1]!r} before {second.ids[-1]!r}"
        witness = (*(read.number for read in reads), first.number)
        found.add("reorder", first.ids[-1], witness, because, derived=True)
    for append in case.appends:
        low, high = bounds.earliest[append], bounds.latest[append]
        if low.ns > high.ns:
            because = f"append {append.number} wrote {append.ids[-1]!r}"
            witness = (append.number, *low.ops, *high.ops)
            also = ("durable", "fresh", "snapshot", "forgotten")
            found.add("reorder", append.ids[-1], witness, because, also=also, derived=True)


def _missing(
    bounds: Bounds, read: Read, waiting: list[Append], alive: Peaks, facts: Facts
) -> Iterator[Append]:
    row = bounds.rows[read]
    shown = set(row)
    began = bounds.read_earliest(read).ns
    next_ones = bounds.after.get(row[-1], {}) if row else {}
    if read.cut and not row:
        return
    yield from (a for a in next_ones if a not in shown and bounds.latest[a].ns < began)
    # Of a window only the messages newer than its first are wanted; of the others all are that
    # no forget can have taken.
    first_ns = bounds.latest[row[0]].ns if row else read.comp

    def began_by(append: Append) -> int:
        return bounds.earliest[append].ns

    end = bisect_left(waiting, began, key=began_by)
    wanted: Iterable[int] = alive.above(facts.forgotten_until(first_ns), end)
    if read.cut:
        wanted = range(bisect_right(waiting, first_ns, key=began_by), end)
    for append in map(waiting.__getitem__, wanted):
        if not (append in shown or bounds.latest[append].ns >= began or append in next_ones):
            yield append


def _alive(bounds: Bounds, append: Append) -> int:
    """Until when it was certainly there: it began, and no read showed it later."""
    reads = bounds.shown_by.get(append, [])
    seen = max((bounds.read_earliest(read).ns for read in reads), default=0)
    return max(seen, bounds.earliest[append].ns)


def _report_missing(
    facts: Facts,
    read: Read,
    append: Append,
    found: Findings,
    witness: tuple[int, ...],
    spare: tuple[int, ...],
    lean: str,
) -> None:
    again = next((r for r in facts.shown_by.get(append, []) if r.comp > read.inv), None)
    because = f"read {read.number} lacks {append.ids[-1]!r}"
    name = "lost" if again is None else "stale"
    numbers = witness if again is None else (*witness, again.number)
    also = {"durable", "ordered", "fresh"} if again is None else {"ordered", "fresh"}
    if facts.case.may_be_forgotten(append, read):
        also.add("forgotten")
    found.add(
        name, append.ids[-1], numbers, because,
        spare=spare, also=also | ({"snapshot"} if read.limit is not None else set()),
        lean=lean, read=read.number, derived=True,
    )  # fmt: skip
    if read.limit is not None:
        found.add(
            "window", append.ids[-1], numbers, because,
            spare=spare, also=also, read=read.number, derived=True,
        )  # fmt: skip


def _spare(bounds: Bounds, read: Read, append: Append) -> tuple[int, ...]:
    """What else can belong to the proof: when the read and the append began at the earliest."""
    row = bounds.rows[read]
    ends = (*bounds.latest[row[0]].ops,) if row else ()
    link = bounds.after.get(row[-1], {}).get(append) if row else None
    links = () if link is None else (link.number,)
    whole = () if read.whole_by is None else (read.whole_by,)
    began = bounds.read_earliest(read).ops
    seen = max(bounds.shown_by.get(append, []), key=lambda r: r.inv, default=None)
    still = () if seen is None else (seen.number,)
    return (*links, *whole, *began, *still, append.number, *bounds.earliest[append].ops, *ends)


def _check_neighbours(facts: Facts, bounds: Bounds, read: Read, found: Findings) -> None:
    """A message stands next to the same messages in every read that reaches so far."""
    row = bounds.rows[read]
    shown = set(row)
    pairs: list[tuple[Append | None, Append]] = list(pairwise(row))
    if row and not read.cut:
        pairs.insert(0, (None, row[0]))
    for left, right in pairs:
        before = bounds.before.get(right, {})
        after = bounds.after.get(left, {}) if left else {}
        if len(before) + len(after) == 2 and left in before:  # noqa: PLR2004 - each other, only
            continue
        for append, other in before.items():
            if append is not left and append not in shown:
                _report_gap(facts, found, read, other, append, right)
        for append, other in after.items():
            # The later read is to blame: the earlier cannot lack what was not there yet.
            earlier = other.inv <= read.inv and right not in bounds.rows[other]
            if earlier and append is not right and append not in shown:
                _report_gap(facts, found, read, other, append, right)


def _report_gap(
    facts: Facts, found: Findings, read: Read, other: Read, append: Append, right: Append
) -> None:
    """One took its place before what was there already, or a read left it out, or it is gone.

    What a forget may have taken is not lost: the forget left over what stands behind it.
    """
    because = f"read {read.number} shows {right.ids[-1]!r} without {append.ids[-1]!r}"
    name, message, also = "lost", append.ids[-1], {"snapshot", "forgotten", "ordered"}
    gone = facts.known_ns[append] < read.inv and facts.forget_between(other.inv, other.comp)
    if not gone and facts.shown_after(append, read.inv) is not None:
        name = "reorder"
    elif gone or facts.forget_between(append.inv, read.comp):
        name, message, also = "resurrected", right.ids[-1], also | {"durable"}
    whole = () if read.whole_by is None else (read.whole_by,)
    found.add(
        name, message, (other.number, read.number), because,
        spare=(*whole, right.number, append.number),
        also=also, read=read.number, derived=True,
    )  # fmt: skip


def _check_beginnings(facts: Facts, bounds: Bounds, found: Findings) -> None:
    """Nothing was ever forgotten, so every read that shows the beginning shows the same one."""
    first: Read | None = None
    for read, row in bounds.rows.items():
        if not row or read.cut:
            continue
        if first is None:
            first = read
        start = bounds.rows[first][0]
        if row[0] is not start and start not in row:
            _report_gap(facts, found, read, first, start, row[0])
        elif row[0] is not start and row[0] not in bounds.rows[first]:
            _report_gap(facts, found, first, read, row[0], start)


def _check_forgotten(case: Case, bounds: Bounds, found: Findings) -> None:
    """Report what a forget took away, where only bounds say when it was there or read."""
    forgets = Soonest(case)
    for read in case.reads if forgets else ():
        began = bounds.read_earliest(read)
        for append in bounds.rows[read]:
            known = bounds.latest[append]
            forget = forgets.after(known.ns)
            if forget is not None and forget.comp < began.ns:
                message = next(m for m in reversed(append.ids) if m in read.ids)
                because = f"read {read.number} shows {message!r}"
                witness = (*known.ops, forget.number or 0, *began.ops, read.number)
                found.add(
                    "resurrected", message, witness, because,
                    spare=(append.number,), also=("fresh",), read=read.number, derived=True,
                )  # fmt: skip
