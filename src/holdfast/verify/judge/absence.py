"""What a read lacks although it was there: hole, lost, rollback, stale, window, expired-early."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise

from holdfast.verify.judge.bounds import Bound, Bounds
from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.findings import Findings

NS_PER_MS = 1_000_000


def check_absence(case: Case, bounds: Bounds, found: Findings) -> None:
    """Report every message that was known before a read, missing from it, and unexcused."""
    excuses = _Excuses(case)
    waiting = sorted(case.appends, key=lambda append: bounds.earliest[append].ns)
    for read in sorted(case.reads, key=lambda read: read.inv):
        _check_neighbours(bounds, read, found)
        missing = list(_missing(bounds, read, waiting, excuses))
        row = bounds.rows[read]
        holes = [append for append in missing if _shows_later(bounds, row, append)]
        is_suffix = not holes and not any(_stood_before(bounds, row, a) for a in missing)
        for append in missing:
            _report(case, bounds, read, append, found, is_suffix=is_suffix)
        for append in holes:
            _report_hole(bounds, read, append, found)
    if not case.forgets:
        _check_beginnings(bounds, found)


class _Excuses:
    """The forgets of a session, asked in log n whether one can excuse an absence."""

    def __init__(self, case: Case) -> None:
        forgets = sorted(case.forgets, key=lambda forget: forget.inv)
        self._invs = [forget.inv for forget in forgets]
        self._comps = list(accumulate((forget.comp for forget in forgets), max))

    def between(self, low_ns: int, high_ns: int) -> bool:
        """Whether a forget may have taken effect after `low_ns` and before `high_ns`."""
        if low_ns > high_ns:
            return False
        at = bisect_right(self._invs, high_ns)
        return at > 0 and self._comps[at - 1] >= low_ns


def _missing(
    bounds: Bounds, read: Read, waiting: list[Append], excuses: _Excuses
) -> Iterator[Append]:
    row = bounds.rows[read]
    shown = set(row)
    began = bounds.read_earliest(read).ns
    next_ones = bounds.after.get(row[-1], {}) if row else {}
    # Of a window only the messages newer than its first are wanted; of the others all are.
    first_ns = bounds.latest[row[0]].ns if row else read.comp
    start = 0
    if read.cut:
        if not row:
            return
        start = bisect_right(waiting, first_ns, key=lambda append: bounds.earliest[append].ns)
        yield from (a for a in next_ones if a not in shown and bounds.latest[a].ns < began)
    for append in waiting[start:]:
        low = bounds.earliest[append].ns
        if low >= began:
            break
        if (
            append in shown
            or bounds.latest[append].ns >= began
            or (read.cut and append in next_ones)
        ):
            continue
        if read.cut or append in next_ones or not excuses.between(_alive(bounds, append), first_ns):
            yield append


def _alive(bounds: Bounds, append: Append) -> int:
    """Until when it was certainly there: it began, and no read showed it later."""
    reads = bounds.shown_by.get(append, [])
    seen = max((bounds.read_earliest(read).ns for read in reads), default=0)
    return max(seen, bounds.earliest[append].ns)


def _shows_later(bounds: Bounds, row: list[Append], append: Append) -> bool:
    return bool(row) and bounds.earliest[row[-1]].ns > bounds.latest[append].ns


def _stood_before(bounds: Bounds, row: list[Append], append: Append) -> bool:
    """Whether some read shows it before a message of the row."""
    rows = [bounds.rows[read] for read in bounds.shown_by.get(append, [])]
    return any(not set(row).isdisjoint(other[other.index(append) + 1 :]) for other in rows)


def _report(
    case: Case, bounds: Bounds, read: Read, append: Append, found: Findings, *, is_suffix: bool
) -> None:
    again = next((r for r in bounds.shown_by.get(append, []) if r.comp > read.inv), None)
    known = bounds.latest[append]
    what = f"{append.ids[0]!r} was {_how_known(append, known)} before read {read.number} began"
    witness = (*known.ops, read.number)
    spare = _spare(bounds, read, append)
    message = append.ids[0]
    if again is not None:
        late_ms = (bounds.read_earliest(read).ns - known.ns) / NS_PER_MS
        who = "its own writer" if read.process == append.process else "another client"
        because = (
            f"{what} and is missing from it, but read {again.number} shows it: "
            f"{late_ms:.3f} ms stale, read by {who}"
        )
        found.add("stale", message, (*witness, again.number), because, spare=spare)
    else:
        name = _loss(case, bounds.rows[read], is_suffix=is_suffix)
        because = f"{what}, is missing from it, and no later read shows it" + _LOSS[name]
        found.add(name, message, witness, because, spare=spare)
    row = bounds.rows[read]
    if row and len(read.ids) == read.limit and not _shows_later(bounds, row, append):
        because = f"{what}, yet its newest {read.limit} hold older messages instead"
        found.add("window", message, witness, because, spare=spare)


_LOSS = {
    "lost": "",
    "rollback": ": the session went back to an earlier state",
    "expired-early": ": the whole session is gone before its time",
}


def _loss(case: Case, row: list[Append], *, is_suffix: bool) -> str:
    if case.ttl_ns is not None and not row:
        return "expired-early"
    return "rollback" if row and is_suffix else "lost"


def _how_known(append: Append, known: Bound) -> str:
    if known.ops == (append.ack_number,) and append.acked:
        return f"acknowledged (append {append.ack_number})"
    return f"shown (operation {known.ops[0]})"


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


def _report_hole(bounds: Bounds, read: Read, append: Append, found: Findings) -> None:
    last = bounds.rows[read][-1]
    because = (
        f"read {read.number} lacks {append.ids[0]!r} and shows {last.ids[0]!r}, "
        f"which began after it was {_how_known(append, bounds.latest[append])}"
    )
    witness = (*bounds.latest[append].ops, *bounds.earliest[last].ops, read.number)
    found.add("hole", append.ids[0], witness, because, spare=_spare(bounds, read, append))


def _check_neighbours(bounds: Bounds, read: Read, found: Findings) -> None:
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
                _report_gap(found, read, other, append, right, how="before")
        for append, other in after.items():
            # The later read is to blame: the earlier cannot lack what was not there yet.
            earlier = other.inv <= read.inv and right not in bounds.rows[other]
            if earlier and append is not right and append not in shown:
                _report_gap(found, read, other, append, right, how="instead of")


def _report_gap(
    found: Findings, read: Read, other: Read, append: Append, right: Append, *, how: str
) -> None:
    because = (
        f"read {other.number} shows {append.ids[0]!r} {how} {right.ids[0]!r}, and "
        f"read {read.number} shows {right.ids[0]!r} without it"
    )
    witness = (other.number, read.number)
    spare = (right.number, append.number)
    found.add("hole", append.ids[0], witness, because, spare=spare)


def _check_beginnings(bounds: Bounds, found: Findings) -> None:
    """Nothing was ever forgotten, so every read that shows the beginning shows the same one."""
    first: Read | None = None
    for read, row in bounds.rows.items():
        if not row or read.cut:
            continue
        if first is None:
            first = read
        start = bounds.rows[first][0]
        if row[0] is not start and start not in row:
            _report_gap(found, read, first, start, row[0], how="instead of")
        elif row[0] is not start and row[0] not in bounds.rows[first]:
            _report_gap(found, first, read, row[0], start, how="instead of")
