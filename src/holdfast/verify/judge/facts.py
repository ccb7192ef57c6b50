"""What single operations say of one session, with nothing concluded: every sentence is made of it.

A fact is known from one operation: an append was acknowledged, a read shows a message, a forget
began and ended. What follows only from several of them together is in `bounds.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge.case import Append, Case, Forget, Read


@dataclass(frozen=True, slots=True)
class Sight:
    """The operation at whose end a batch was certainly there, and how a sentence says so."""

    ns: int
    number: int
    words: str
    ids: tuple[str, ...]
    """The messages that this operation speaks for."""


class Facts:
    """The reads of a case as rows of batches, and when each batch was known."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows: dict[Read, list[Append]] = {}
        self.shown_by: dict[Append, list[Read]] = {}
        for read in case.reads:
            row = list(dict.fromkeys(case.writer[message] for message in read.ids))
            self.rows[read] = row
            for append in row:
                self.shown_by.setdefault(append, []).append(read)
        self._came_back = [read for read in case.reads if read.back]
        self._first_shown = {
            append: min(reads, key=lambda read: read.comp)
            for append, reads in self.shown_by.items()
        }
        self._last_seen = {
            append: max(read.inv for read in reads) for append, reads in self.shown_by.items()
        }
        self._oldest = {
            read: min(map(self.known_ns, row), default=NEVER_NS) for read, row in self.rows.items()
        }
        self._forgets = sorted(case.forgets, key=lambda forget: forget.inv)
        self._spans = _Spans(self._forgets)
        self._certain = _Spans([forget for forget in self._forgets if forget.certain])

    def known_ns(self, append: Append) -> int:
        """When it was known, by an acknowledgement or a read that shows it; never without."""
        shown = self._first_shown.get(append)
        return min(append.ack, NEVER_NS if shown is None else shown.comp)

    def known_before(self, append: Append, time_ns: int) -> Sight | None:
        """The operation that ended before that time and proves that the batch was there."""
        if append.acked and append.comp < time_ns:
            words = f"acknowledged (append {append.ack_number})"
            return Sight(append.comp, append.ack_number, words, append.ids)
        read = self._first_shown.get(append)
        if read is not None and read.comp < time_ns:
            return Sight(read.comp, read.number, f"shown by read {read.number}", read.ids)
        return None

    def shown_before(self, append: Append, time_ns: int) -> bool:
        """Whether a read that ended before that time shows it: no ack has to be believed."""
        read = self._first_shown.get(append)
        return read is not None and read.comp < time_ns

    def shown_after(self, append: Append, time_ns: int) -> list[Read]:
        """The reads that ended after that time and show it, in its place or come back."""
        shows = [read for read in self.shown_by.get(append, []) if read.comp > time_ns]
        return shows + [
            read
            for read in self._came_back
            if read.comp > time_ns and not read.back.isdisjoint(append.ids)
        ]

    def last_seen_ns(self, append: Append) -> int:
        """Until when it was certainly there: it began, and no read that began later shows it."""
        return self._last_seen.get(append, append.inv)

    def forget_between(self, low_ns: int, high_ns: int) -> bool:
        """Whether a forget may have taken effect after `low_ns` and before `high_ns`."""
        return self._spans.meet(low_ns, high_ns)

    def forgotten_between(self, low_ns: int, read: Read) -> bool:
        """As `forget_between` the read's end, but for what the read itself says did not happen.

        A forget of unknown outcome came later, or never, where the read shows what is older.
        """
        until = min(read.comp, self._oldest[read])
        return self._certain.meet(low_ns, read.comp) or self._spans.meet(low_ns, until)

    def forgotten_before(self, append: Append, read: Read) -> Forget | None:
        """A forget after which the batch need not be there any more, whatever came back since."""
        known = self.known_ns(append)
        last = self.last_seen_ns(append)
        return next(
            (f for f in self._forgets if f.inv <= read.comp and (f.inv > known or f.comp >= last)),
            None,
        )

    def forget_after(self, read: Read) -> Forget | None:
        """A forget that may have hidden from later reads what this read lacks."""
        later = (f for f in self._forgets if f.number is not None and f.comp >= read.inv)
        return next(later, None)

    def shown_message(self, append: Append, read: Read) -> str:
        """A message of the batch that the read shows: the last, unless the batch is torn."""
        ids = set(read.ids)
        return next(message for message in reversed(append.ids) if message in ids)


class _Spans:
    """Forgets in the order of their begin: may one of them have taken effect between two times?"""

    def __init__(self, forgets: list[Forget]) -> None:
        self._invs = [forget.inv for forget in forgets]
        self._comps = list(accumulate((forget.comp for forget in forgets), max))

    def meet(self, low_ns: int, high_ns: int) -> bool:
        if low_ns > high_ns:
            return False
        at = bisect_right(self._invs, high_ns)
        return at > 0 and self._comps[at - 1] >= low_ns
