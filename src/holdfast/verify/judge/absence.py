"""What a read lacks although one operation proves that it was there: stale, lost, window, hole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from holdfast.verify.judge.case import Append, Forget, Read, fault_between
from holdfast.verify.judge.facts import LOOKS_MAX, Facts, Sight
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.wanted import Wanted, by_newcomer, gone_for_good, is_swapped

NS_PER_MS: Final = 1_000_000
WRITTEN_LATE: Final = frozenset({"durable", "fresh"})
"""What explains a write that was acknowledged before it was there."""


@dataclass(frozen=True, slots=True)
class _Missing:
    """A batch that was there before the read began, or (`later`) before what the read shows."""

    append: Append
    read: Read
    sight: Sight
    later: Append | None
    beyond: Append | None
    """What the read shows and began after the batch was known: then it is no earlier state."""

    message: str
    lacked_by: Sequence[Read] = ()
    """All reads that lack it."""

    together: int = 1
    """How many batches the read lacks."""

    holes: bool = False
    """Whether reads, this or others, lack what stands between others and comes again."""

    asked_all: bool = False
    """Whether one of the reads that lack it had no limit."""

    swapped: bool = False
    """Whether the read shows what was written over it, and is gone when it is there again: old copies come back."""

    by_newcomer: bool = False
    """Whether one that lacks it is of a process that began only when it was known: it has no old state."""

    also: frozenset[str] = frozenset()
    spare: tuple[int, ...] = ()
    lean: str = ""

    @property
    def witness(self) -> tuple[int, ...]:
        later = () if self.later is None else (self.later.number,)
        return (self.sight.number, *later, self.read.number)


def check_absence(facts: Facts, found: Findings) -> None:
    """Report every batch that was known before a read, is missing from it, and not forgotten."""
    wanted = Wanted(facts)
    lacking: dict[Read, list[Append]] = {}
    lacked_by: dict[Append, list[Read]] = {}
    asked_all: set[Append] = set()
    holes = False
    for read in sorted(facts.case.reads, key=lambda read: read.inv):
        lacking[read] = wanted.lacks(read)
        for append in lacking[read]:
            lacked_by.setdefault(append, []).append(read)
            if read.limit is None:
                asked_all.add(append)
            holes = holes or _is_hole(facts, append, read)
    windows, gone = facts.wrong_windows(lacking), gone_for_good(facts, lacked_by)
    reported: set[object] = set()
    for read, absent in lacking.items():
        lean = "snapshot" if read in windows else ""
        newest = facts.newest(read)
        over = [other for other in facts.rows[read] if other in gone][:LOOKS_MAX] if absent else []
        for append in absent:
            kind = (append, lean, bool(over), *_kind(facts, append, read, newest))
            # Of one kind the first is kept: a long session has as many as messages times reads.
            if kind not in reported:
                reported.add(kind)
                missing = _missing(facts, append, read, newest)
                if missing is not None:
                    missing = replace(
                        missing, lacked_by=lacked_by[append], together=len(absent), holes=holes,
                        asked_all=append in asked_all, swapped=is_swapped(facts, append, over),
                        by_newcomer=by_newcomer(facts, append, lacked_by[append]),
                    )  # fmt: skip
                    _report(facts, missing, found, lean)


def _is_hole(facts: Facts, append: Append, read: Read) -> bool:
    newest, again = facts.newest(read), facts.shown_after(append, read.comp)
    if newest is None or again is None or again.inv <= read.comp:
        return False
    return facts.known_ns[append] < newest.inv and not _written_late(
        facts, append, newest, read.inv
    )


def _kind(facts: Facts, append: Append, read: Read, newest: Append | None) -> tuple[object, ...]:
    """What decides under which names it is reported."""
    again = facts.shown_after(append, read.inv)
    return (
        append.comp < read.inv,
        newest is not None and facts.known_ns[append] < newest.inv,
        None if again is None else again.inv > read.comp,
        facts.shown_before(append, read.inv) is not None,
        read.cut,
        read.limit is None,
        bool(facts.rows[read]),
        facts.forgets_until(read.comp),
    )


def _missing(facts: Facts, append: Append, read: Read, newest: Append | None) -> _Missing | None:
    later = newest if newest is not None and facts.known_ns[append] < newest.inv else None
    sight = facts.known_before(append, read.inv)
    if sight is not None:
        return _Missing(append, read, sight, None, later, _shown_by(append, sight.ids))
    if later is not None and (sight := facts.known_before(append, later.inv)) is not None:
        return _Missing(append, read, sight, later, later, _shown_by(append, sight.ids))
    return None


def _shown_by(append: Append, row: tuple[str, ...]) -> str:
    """The first message of the batch that it holds; a window may cut off the first."""
    return _in_both(append, row, append.ids) or append.ids[-1]


def _in_both(append: Append, one: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """The first message of the batch that both hold: two windows may show two parts of it."""
    return next((m for m in append.ids if m in one and m in other), None)


def _report(facts: Facts, missing: _Missing, found: Findings, lean: str) -> None:
    read = missing.read
    forget = facts.forgotten_before(missing.append, read)
    if forget is not None and _report_half_forgotten(facts, missing, found):
        return
    again = facts.shown_after(missing.append, read.inv)
    if again is not None and again.inv <= read.comp and not _may_be_late(facts, missing):
        again = None  # only a read beside it shows it: it was lost just then
    also = _also(facts, missing)
    swapped = missing.swapped  # an old copy was written over it
    if again is None or again.inv <= read.comp or swapped or _never_stayed(facts, missing):
        also |= {"durable"}  # gone
    elif _written_late(facts, missing.append, missing.beyond, read.inv):
        also |= WRITTEN_LATE
    mixes = missing.lacked_by[-1].inv <= read.comp and missing.holes
    earlier = missing.beyond is None and missing.asked_all and not missing.holes
    if earlier or (again is None and read.limit is None and not mixes):
        # A read of everything shows an earlier state, or none of which it is made lacks it for good.
        also -= {"snapshot"}
    spare = (missing.append.number, *_spare(facts, missing))
    missing = replace(missing, also=also, spare=spare, lean=lean)
    if again is not None:
        _report_again(facts, missing, again, found)
    elif (
        _may_be_late(facts, missing)
        and _hidden_by_forget(facts, missing)
        and not _after_fault(facts, missing)
    ):
        _report_late(facts, missing, found)
    else:
        _report_lost(facts, _surely(facts, missing), found)
        if not read.cut:
            return  # all was asked for that there was, and it is gone
    if read.limit is not None:
        _report_window(facts, missing, found)


def _surely(facts: Facts, missing: _Missing) -> _Missing:
    """What nobody is shown any more after a fault is gone, however few late reads would explain it."""
    is_sure = missing.by_newcomer and _after_fault(facts, missing)
    return replace(missing, also=missing.also - {"fresh"}) if is_sure else missing


def _never_stayed(facts: Facts, missing: _Missing) -> bool:
    """Whether it is gone in the end, and a read that is not late says so: who saw it saw what was never kept."""
    append, others = missing.append, missing.lacked_by[:LOOKS_MAX]
    newest = [one for other in others if (one := facts.newest(other)) is not None]
    shows_newer = any(facts.known_ns[append] < one.inv for one in newest)
    return shows_newer and facts.shown_after(append, missing.lacked_by[-1].inv) is None


def _add(found: Findings, name: str, missing: _Missing, because: str, *more: int) -> None:
    found.add(
        name, missing.message, (*missing.witness, *more), because,
        spare=missing.spare, also=missing.also, lean=missing.lean, read=missing.read.number,
        reads=[read.number for read in missing.lacked_by],
    )  # fmt: skip


def _also(facts: Facts, missing: _Missing) -> frozenset[str]:
    """What else explains that it is missing: an earlier state, another window, another place."""
    read = missing.read
    also = {"snapshot"} if missing.beyond is not None else {"fresh", "snapshot"}
    if read.cut:
        also.add("ordered")
        if any(facts.case.may_be_forgotten(append, read) for append in facts.rows[read]):
            also.add("forgotten")  # what came back stands where newer messages belong
    if (forget := facts.forgotten_before(missing.append, read)) is not None:
        also.add("forgotten")
        if missing.append.retried_after(forget.inv):
            also.add("exactly-once")
    row = facts.rows[read]
    if read.cut and row[0].retried_after(missing.append.inv):
        also.add("exactly-once")  # the first of the window was written once more
    if (
        read.cut
        and not facts.shown_before(row[0], missing.append.inv)
        and _stands_behind(facts, row[0], missing.append) is not False
    ):
        also |= WRITTEN_LATE  # so that the first of the window is newer than its ack says
    first_ns = facts.known_ns[row[0]] if row else read.comp
    if facts.forget_between(missing.append.inv, first_ns):
        # It was forgotten before: whichever read shows it after that was late, or it came back.
        also |= {"fresh", "forgotten"}
    return frozenset(also)


def _spare(facts: Facts, missing: _Missing) -> tuple[int, ...]:
    """What else can belong to the proof: until when the batch, and since when the first is there."""
    shown = facts.shown_by.get(missing.append, [])
    last = () if not shown else (shown[-1].number,)  # reads are in the order of their begin
    row = facts.rows[missing.read]
    whole = () if missing.read.whole_by is None else (missing.read.whole_by,)
    first = () if not row else _proof(facts, row[0])
    return (*last, *whole, *first)


def _proof(facts: Facts, append: Append) -> tuple[int, ...]:
    sight = facts.known_before(append, facts.known_ns[append] + 1)
    return () if sight is None else (sight.number,)


def _what(facts: Facts, missing: _Missing) -> str:
    read = missing.read
    if missing.later is None:
        return (
            f"{missing.message!r} was {missing.sight.words} before read {read.number} began "
            "and is missing from it"
        )
    shown = facts.shown_message(missing.later, read)
    return (
        f"{missing.message!r} was {missing.sight.words} before append {missing.later.number} of "
        f"{shown!r} began, and read {read.number} shows {shown!r} without it"
    )


def _report_lost(facts: Facts, missing: _Missing, found: Findings) -> None:
    read, row = missing.read, facts.rows[missing.read]
    name = "rollback" if row and missing.beyond is None else "lost"
    began = "ended", "began"
    if facts.shown_after(missing.append, read.inv) is not None:
        began = "began", "ended"
    because = (
        f"{_what(facts, missing)}, and no read that {began[0]} after read {read.number} {began[1]} "
        "shows it"
    )
    if _is_over(facts, missing):
        name = "expired-early"
        older = f" as old as {missing.message!r}" if row else ""
        because += (
            f": read {read.number} shows nothing{older}, the whole session is gone before its time"
        )
    _add(found, name, replace(missing, lean=""), because)


def _is_over(facts: Facts, missing: _Missing) -> bool:
    """Whether the session has a time to live, and nothing that is as old is there any more."""
    if facts.case.ttl_ns is None:
        return False
    read = missing.read
    whole = read.shown == len(read.ids) and missing.together > 1
    return not read.shown or (whole and _front_is_gone(facts, missing))


def _may_be_late(facts: Facts, missing: _Missing) -> bool:
    """Whether the read shows an earlier state, and not what a store left that cuts off the oldest."""
    return missing.beyond is None and not (
        _is_over(facts, missing) or (facts.case.trims and _front_is_gone(facts, missing))
    )


def _after_fault(facts: Facts, missing: _Missing) -> bool:
    """Whether a fault came between the append and the read: it may have taken it away."""
    read, inv = missing.read, missing.append.inv
    return fault_between(facts.case.faults, inv, read.comp) is not None


def _front_is_gone(facts: Facts, missing: _Missing) -> bool:
    row = facts.rows[missing.read]
    return bool(row) and min(append.inv for append in row) > missing.append.inv


def _hidden_by_forget(facts: Facts, missing: _Missing) -> bool:
    """Whether a forget came before any other read could lack it too: one late read is enough."""
    read, others = missing.read, missing.lacked_by
    after = bisect_right(others, read.inv, key=lambda other: other.inv)
    return facts.forget_after(read) is not None and not any(
        not facts.forgotten_between(read.inv, other) for other in others[after : after + LOOKS_MAX]
    )


def _report_late(facts: Facts, missing: _Missing, found: Findings) -> None:
    read, forget = missing.read, facts.forget_after(missing.read)
    if forget is None:
        return
    ended = "ended" if forget.certain else "was not acknowledged and may have taken effect"
    because = (
        f"{_what(facts, missing)}; forget {forget.number} {ended} after read {read.number} began, "
        "so no later read can tell whether it was lost"
    )
    _add(found, "stale", missing, because)


def _report_again(facts: Facts, missing: _Missing, again: Read, found: Findings) -> None:
    read, append = missing.read, missing.append
    both = _in_both(append, missing.sight.ids, (*again.ids, *again.back))
    message = _shown_by(append, missing.sight.ids) if both is None else both
    missing = replace(missing, message=message)
    because, more = _what(facts, missing), (again.number,) if both else ()
    if both is not None:
        when = "the later read" if again.inv > read.comp else "read"
        because = f"{because}, but {when} {again.number} shows it"
    if missing.beyond is not None and not _written_late(facts, append, missing.beyond, read.inv):
        _add(found, "hole", missing, because, missing.beyond.number, *more)
        return
    if missing.later is None:
        because += f": {(read.inv - missing.sight.ns) / NS_PER_MS:.3f} ms stale"
        if missing.sight.number == append.ack_number:
            own = read.process == append.process
            because += f", read by {'its own writer' if own else 'another client'}"
    _add(found, "stale", missing, because, *more)


def _written_late(facts: Facts, append: Append, newer: Append | None, time_ns: int) -> bool:
    """Whether the ack came before the write: nobody saw it by then, and it stands behind the newer."""
    if facts.shown_before(append, time_ns):
        return False
    return newer is None or _stands_behind(facts, append, newer) is True


def _stands_behind(facts: Facts, one: Append, other: Append) -> bool | None:
    """Whether the last read of both shows one behind the other; None where no read tells."""
    rows = (facts.rows[read] for read in islice(reversed(facts.shown_by.get(one, [])), LOOKS_MAX))
    row = next((row for row in rows if other in row), None)
    return None if row is None else row.index(one) > row.index(other)


def _report_window(facts: Facts, missing: _Missing, found: Findings) -> None:
    read, append = missing.read, missing.append
    row = facts.rows[read]
    sight = facts.known_before(row[0], append.inv) if row else None
    because = f"{_what(facts, missing)}, which asked for the newest {read.limit}"
    spare = missing.spare
    old = None if sight is None else _in_both(row[0], sight.ids, read.ids)
    if sight is not None and old is not None:
        because += (
            f" and shows {old!r}, which was {sight.words} before append {append.number} of "
            f"{missing.message!r} began"
        )
        spare = (sight.number, *spare)
    _add(found, "window", replace(missing, spare=spare, also=missing.also - {"snapshot"}), because)


def _report_half_forgotten(facts: Facts, missing: _Missing, found: Findings) -> bool:
    """A forget took it and left another, which was there before the forget, or beside it."""
    read, append = missing.read, missing.append
    row = facts.rows[read]
    if not row:
        return False
    oldest = min(row, key=facts.known_ns.__getitem__)
    for forget in facts.forgets_after(facts.known_ns[append], read.comp):
        # Beside the read it may well have come after it, unless it has begun with the oldest.
        beside = forget.comp >= read.inv and not _is_cut_by(missing, forget)
        if beside and (row[0].inv < append.inv or facts.case.trims or _after_fault(facts, missing)):
            continue
        kept = row[0] if beside else oldest
        gone, sight = (facts.known_before(one, forget.inv) for one in (append, kept))
        shown = None if sight is None else _in_both(kept, sight.ids, read.ids)
        if gone is not None and sight is not None and shown is not None:
            message = _shown_by(append, gone.ids)
            because = (
                f"{message!r} was {gone.words} and {shown!r} was {sight.words} before "
                f"forget {forget.number} began, and read {read.number} shows {shown!r} without "
                f"{message!r}"
            )
            witness = (gone.number, sight.number, forget.number or 0, read.number)
            _add_forgotten(facts, missing, found, shown, witness, because, forget)
            return forget.certain
    both = facts.shown_beside_forget(append, row)
    if both is None:
        return False
    other, kept, forget = both
    lost = next((m for m in append.ids if m in other.ids and m not in read.back), None)
    left = next((m for m in kept.ids if m in other.ids and m in read.ids), None)
    if lost is None or left is None:
        return False  # each shows another part of it
    because = (
        f"read {other.number} shows {lost!r} and {left!r} while forget {forget.number} may take "
        f"effect, and read {read.number} shows {left!r} without {lost!r}"
    )
    _add_forgotten(facts, missing, found, left, (other.number, read.number), because, forget)
    return forget.certain


def _is_cut_by(missing: _Missing, forget: Forget) -> bool:
    """Whether a read lasted while all of the forget was done, or several reads lack it just then.

    Those would be as many late reads, and it is one forget.
    """
    read, others = missing.read, missing.lacked_by[:LOOKS_MAX]
    within = read.inv <= forget.inv and forget.comp <= read.comp
    meet = [other.inv <= forget.comp and other.comp >= forget.inv for other in others]
    return forget.certain and (within or (len(meet) > 1 and all(meet)))


def _add_forgotten(
    facts: Facts,
    missing: _Missing,
    found: Findings,
    shown: str,
    witness: tuple[int, ...],
    because: str,
    forget: Forget,
) -> None:
    """A forget that may never have come speaks for nothing by itself."""
    found.add(
        "resurrected", shown, witness, because, lean="" if forget.certain else "none",
        spare=(*_spare(facts, missing), *missing.witness),
        also=_also(facts, missing) | {"durable"}, read=missing.read.number,
    )  # fmt: skip
