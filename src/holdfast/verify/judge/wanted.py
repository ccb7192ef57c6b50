"""Which batches a read lacks, without a look at every pair of a read and a message; and which are gone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge.case import Append, Read
from holdfast.verify.judge.facts import LOOKS_MAX, Facts
from holdfast.verify.judge.peaks import Peaks

LACKED_MAX: Final = 32
"""So many reads of a kind that lack a batch tell as much as all of them."""


class Wanted:
    """Which batches a read lacks.

    What `LACKED_MAX` reads of a kind lack is asked of no further ones until a read shows it: a long
    session has as many pairs as messages times reads.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._appends = sorted(facts.case.appends, key=facts.known_ns.__getitem__)
        self._seen_ns = [facts.last_seen_ns(append) for append in self._appends]
        self._kinds: dict[tuple[bool, bool], tuple[Peaks, Counter[int]]] = {}
        self._dropped: dict[Append, list[tuple[int, Peaks, Counter[int]]]] = {}

    def lacks(self, read: Read) -> list[Append]:
        """What was known before the read began, or before what it shows did, and is not in it."""
        kind = read.cut, read.limit is None
        if kind not in self._kinds:
            self._kinds[kind] = Peaks(self._seen_ns), Counter()
        seen, counts = self._kinds[kind]
        row = self._facts.rows[read]
        for append in row if self._dropped else ():
            for at, peaks, counted in self._dropped.pop(append, ()):
                peaks.put(at, self._seen_ns[at])
                counted[at] = 0
        places = [] if read.cut and not row else list(self._places(read, row, seen))
        for at in places:
            counts[at] += 1
            if counts[at] == LACKED_MAX:
                seen.put(at, -NEVER_NS)
                self._dropped.setdefault(self._appends[at], []).append((at, seen, counts))
        return [self._appends[at] for at in places]

    def _places(self, read: Read, row: list[Append], seen: Peaks) -> Iterator[int]:
        facts, appends, known_ns = self._facts, self._appends, self._facts.known_ns
        shown, newest = set(row), facts.newest(read)
        began = read.inv if newest is None else max(read.inv, newest.inv)
        # Of a window only what is newer than its first is wanted; of the others everything is that
        # no forget can have taken. In a long session those are few.
        first_ns = known_ns[row[0]] if row else read.comp
        end = bisect_left(appends, began, key=known_ns.__getitem__)
        if read.cut:
            begin = bisect_right(appends, first_ns, key=known_ns.__getitem__)
            wanted = seen.above(-NEVER_NS, end, begin)
        else:
            wanted = seen.above(facts.forgotten_until(first_ns), end)
        for at in wanted:
            append = appends[at]
            older = read.cut and append.inv <= first_ns
            if append not in shown and not older and read.back.isdisjoint(append.ids):
                yield at


def gone_for_good(facts: Facts, lacked_by: Mapping[Append, list[Read]]) -> set[Append]:
    """What no forget took and is in no read any more since one lacked it that is not late: it shows what is newer."""
    last = ((append, reads[-1]) for append, reads in lacked_by.items())
    return {
        append
        for append, read in last
        if facts.shown_after(append, read.inv) is None
        and not facts.forget_between(append.inv, read.comp)
        and (newest := facts.newest(read)) is not None
        and facts.known_ns[append] < newest.inv
    }


def by_newcomer(facts: Facts, append: Append, lacked_by: list[Read]) -> bool:
    """Whether a read that lacks it is of a process that began when it was known: it has no old state."""
    if not facts.case.faults:
        return False
    began_ns, known_ns = facts.case.began_ns, facts.known_ns[append]
    return any(began_ns(read.process) > known_ns for read in lacked_by[-LOOKS_MAX:])


def is_swapped(facts: Facts, append: Append, over: list[Append]) -> bool:
    """Whether one of those that were written over it is in no read that shows it."""
    shown = set(facts.shown_by.get(append, ()))
    return bool(shown) and any(shown.isdisjoint(facts.shown_by[other]) for other in over)
