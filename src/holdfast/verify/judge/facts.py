"""What single operations say of one session, with nothing concluded: every sentence is made of it.

A fact is known from one operation: an append was acknowledged, a read shows a message, a forget
began and ended. What follows only from several of them together is in `effect_times.py`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Final

from holdfast.verify.history import NEVER_NS
from holdfast.verify.judge.case import Append, Case, Forget, Read

_STRANGE: Final = 0.3
LOOKS_MAX: Final = 16
"""So many reads are asked for the order of two batches."""


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
        self._shows: dict[Append, list[Read]] = {}
        """As `shown_by`, and those that show it come back."""
        for read in case.reads:
            back = dict.fromkeys(case.writer[m] for m in read.back if m in case.writer)
            for append in {**dict.fromkeys(self.rows[read]), **back}:
                self._shows.setdefault(append, []).append(read)
        self._last_end_ns = {
            append: max(read.comp for read in reads) for append, reads in self._shows.items()
        }
        self._first_shown = {
            append: min(reads, key=lambda read: read.comp)
            for append, reads in self.shown_by.items()
        }
        self._last_shown = {
            append: max(reads, key=lambda read: read.inv) for append, reads in self.shown_by.items()
        }
        self.known_ns = {append: self._known(append) for append in case.appends}
        """When each was known, by an acknowledgement or a read that shows it; never without."""
        self._oldest = {
            read: min((self.known_ns[append] for append in row), default=NEVER_NS)
            for read, row in self.rows.items()
        }
        self._followers = {a: b for row in self.rows.values() for a, b in pairwise(row)}
        self._ends = {row[-1] for read, row in self.rows.items() if row and read.limit is None}
        self._beginnings = {read.ids[0] for read in case.reads if read.ids and not read.cut}
        self._forgets = sorted(case.forgets, key=lambda forget: forget.inv)
        self._longest = list(accumulate(self._forgets, _longer))
        self._asked = [forget for forget in self._forgets if forget.number is not None]
        self._asked_until = list(accumulate((forget.comp for forget in self._asked), max))
        self._spans = case.spans

    def _known(self, append: Append) -> int:
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

    def newest(self, read: Read) -> Append | None:
        """What began last of all that it shows."""
        return max(self.rows[read], key=lambda append: append.inv, default=None)

    def wrong_windows(self, lacking: Mapping[Read, list[Append]]) -> set[Read]:
        """The reads that lack something because of their limit, and not because they are late.

        Those that show exactly the oldest, where half of them do; or all of them, where reads without a limit lack
        nothing, and either fewer of those with one certainly show the newest, or not many more
        do and it would be a strange chance that only those with one were late.
        """
        wrong = {read for read, missing in lacking.items() if missing}
        if any(read.limit is None for read in wrong):
            return set()
        if len(wrong) == 1 and not any(read.cut for read in wrong):
            return set()  # another window would be as long as its limit
        limited = [read for read in lacking if read.limit is not None]
        certain = sum(self._shows_newest(read) for read in limited if read not in wrong)
        strange = is_strange(len(limited), len(lacking), len(wrong))
        if len(wrong) > certain or (4 * len(wrong) > certain and strange):
            return wrong
        oldest = {read for read in wrong if self._shows_oldest(read)}
        return oldest if 2 * len(oldest) >= len(wrong) else set()

    def _shows_newest(self, read: Read) -> bool:
        """Whether what follows its last message began after the read ended, if anything does."""
        row = self.rows[read]
        after = self._followers.get(row[-1]) if row else None
        return bool(row) and (row[-1] in self._ends if after is None else after.inv > read.comp)

    def _shows_oldest(self, read: Read) -> bool:
        """Whether it is as long as it may be, and begins where the session does."""
        return read.limit == len(read.ids) > 0 and read.ids[0] in self._beginnings

    def forgets_until(self, time_ns: int) -> int:
        """How many forgets began by then."""
        return bisect_right(self._forgets, time_ns, key=lambda forget: forget.inv)

    def forgets_after(self, low_ns: int, high_ns: int) -> Iterator[Forget]:
        """The first forgets that began after `low_ns`, by `high_ns`."""
        first, end = self.forgets_until(low_ns), self.forgets_until(high_ns)
        few = self._forgets[first : min(end, first + LOOKS_MAX)]
        return (forget for forget in few if forget.number is not None)

    def shown_before(self, append: Append, time_ns: int) -> Read | None:
        """A read that ended before that time and shows it: no ack has to be believed."""
        read = self._first_shown.get(append)
        return read if read is not None and read.comp < time_ns else None

    def shown_after(self, append: Append, time_ns: int) -> Read | None:
        """The last read that ended after that time and shows it, in its place or come back."""
        if self._last_end_ns.get(append, -NEVER_NS) <= time_ns:
            return None
        return next(read for read in reversed(self._shows[append]) if read.comp > time_ns)

    def last_seen_ns(self, append: Append) -> int:
        """Until when it was certainly there: it began, and no read that began later shows it."""
        last = self._last_shown.get(append)
        return append.inv if last is None else last.inv

    def forget_between(self, low_ns: int, high_ns: int) -> bool:
        """Whether a forget may have taken effect after `low_ns` and before `high_ns`."""
        return self._spans.meet(low_ns, high_ns)

    def forgotten_until(self, high_ns: int) -> int:
        """What was last there by this time may have been forgotten before `high_ns`."""
        return self._spans.until(high_ns)

    def forgotten_between(self, low_ns: int, read: Read) -> bool:
        """As `forget_between` the read's end, but for what the read itself says did not happen.

        A forget came later, or never, where the read shows what is older.
        """
        return self._spans.meet(low_ns, min(read.comp, self._oldest[read]))

    def forgotten_before(self, append: Append, read: Read) -> Forget | None:
        """A forget after which the batch need not be there any more, whatever came back since."""
        known = self.known_ns[append]
        last = self.last_seen_ns(append)
        after = self.forgets_until(known)
        if after < self.forgets_until(read.comp):
            return self._forgets[after]
        longest = self._longest[self.forgets_until(min(known, read.comp)) - 1] if after else None
        return longest if longest is not None and longest.comp >= last else None

    def shown_beside_forget(
        self, append: Append, row: list[Append]
    ) -> tuple[Read, Append, Forget] | None:
        """A read that shows it before one of the row, while a forget may have taken effect."""
        for read in islice(reversed(self.shown_by.get(append, [])), LOOKS_MAX):
            if self._spans.meet(read.inv, read.comp):
                shown = self.rows[read]
                behind = set(shown[shown.index(append) + 1 :])
                kept = next((one for one in row if one in behind), None)
                beside = (f for f in self._forgets if f.inv <= read.comp and f.comp >= read.inv)
                forget = next((f for f in beside if f.number is not None), None)
                if kept is not None and forget is not None:
                    return read, kept, forget
        return None

    def forget_after(self, read: Read) -> Forget | None:
        """A forget that may have hidden from later reads what this read lacks."""
        at = bisect_left(self._asked_until, read.inv)
        return self._asked[at] if at < len(self._asked) else None

    def shown_message(self, append: Append, read: Read) -> str:
        """A message of the batch that the read shows: the last, unless the batch is torn."""
        return next(message for message in reversed(append.ids) if message in read.ids)


def is_strange(limited: int, reads: int, wrong: int) -> bool:
    """Whether it would be a strange chance that so many wrong reads all had a limit."""
    return wrong > 0 and (limited / reads) ** wrong < _STRANGE


def _longer(one: Forget, other: Forget) -> Forget:
    return one if one.comp >= other.comp else other
