"""What one read shows, taken by itself: duplicate, phantom, leak, torn, and too long a window."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from holdfast.verify.history import Operation
from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.facts import is_strange
from holdfast.verify.judge.findings import Findings
from holdfast.verify.judge.forgotten import check_forgotten


def check_contents(case: Case, writers: Mapping[str, Operation], found: Findings) -> None:
    """Report what no single read may show. Afterwards reads hold only what can be explained."""
    foreign: set[int] = set()
    for read in case.reads:
        if read.limit is not None and len(read.ids) > read.limit:
            extra = read.ids[0]
            writer = case.writer.get(extra)
            numbers = (read.number,) if writer is None else (writer.number, read.number)
            because = (
                f"read {read.number} asked for the newest {read.limit} and got {len(read.ids)}"
            )
            once = len(set(read.ids)) <= read.limit
            also = ("exactly-once",) if once else ()  # what is shown twice makes it too long
            found.add("window", extra, numbers, because, also=also, read=read.number)
        shown, read.ids = read.ids, _explained(case, read, writers, found)
        if shown and not read.ids and all(_is_foreign(case, m, writers) for m in shown):
            foreign.add(read.number)
    # An answer that is another session's says nothing of this one.
    case.reads = [read for read in case.reads if read.number not in foreign]
    _leave_out(case, found.messages("duplicate"))
    check_forgotten(case, found)
    first: dict[str, Read] = {}
    for read in sorted(case.reads, key=lambda read: read.comp):
        first |= dict.fromkeys((m for m in read.ids if m not in first), read)
    broken = [part for read in case.reads for part in _broken_batches(case, read)]
    windows = _are_windows(case, broken)
    for part in broken:
        _report_batch(case, part, first, found, windows)


class _Part(NamedTuple):
    """What a read shows of a batch that it does not show whole and in one piece."""

    read: Read
    batch: Append
    shown: tuple[str, ...]
    start: int
    """Where the first of it stands."""

    @property
    def at_an_end(self) -> bool:
        """Whether a window may have cut the batch: a piece of it, where the read begins or ends."""
        ids, shown, start = self.batch.ids, self.shown, self.batch.ids.index(self.shown[0])
        is_piece = ids[start : start + len(shown)] == shown
        at_end = shown in (self.read.ids[: len(shown)], self.read.ids[-len(shown) :])
        return self.read.limit is not None and is_piece and at_end


def _are_windows(case: Case, broken: list[_Part]) -> bool:
    """Whether only limits cut batches, and that would be a strange chance where batches are torn."""
    cut = [part.at_an_end for part in broken]
    limited = sum(read.limit is not None for read in case.reads)
    return bool(cut) and all(cut) and is_strange(limited, len(case.reads), len(cut))


def _leave_out(case: Case, doubled: set[str]) -> None:
    """What took effect twice has no one place, so nothing more is concluded from it."""
    if not doubled:
        return
    twice = {id(case.writer[message]) for message in doubled}
    case.appends = [append for append in case.appends if id(append) not in twice]
    for read in case.reads:
        read.ids = tuple(m for m in read.ids if id(case.writer[m]) not in twice)


def _explained(
    case: Case, read: Read, writers: Mapping[str, Operation], found: Findings
) -> tuple[str, ...]:
    """The ids of a read, once each, without those that it cannot have seen."""
    if len(read.ids) == len(set(read.ids)) and all(
        (append := case.writer.get(m)) is not None and append.inv <= read.comp for m in read.ids
    ):
        return read.ids
    kept: dict[str, None] = {}
    for message in read.ids:
        if message in kept:
            _duplicate(case, read, message, found)
        elif _possible(case, read, message, writers, found):
            kept[message] = None
    return tuple(kept)


def _duplicate(case: Case, read: Read, message: str, found: Findings) -> None:
    append = case.writer[message]
    tries = len(append.tries)
    once = "it was appended once" if tries == 1 else f"its {tries} attempts have the same key"
    because = f"read {read.number} shows {message!r} more than once, and {once}"
    found.add("duplicate", message, (append.number, read.number), because, read=read.number)


def _is_foreign(case: Case, message: str, writers: Mapping[str, Operation]) -> bool:
    """Whether only another session was given it."""
    elsewhere = writers.get(message)
    return message not in case.writer and elsewhere is not None and elsewhere.session != case.name


def _possible(
    case: Case, read: Read, message: str, writers: Mapping[str, Operation], found: Findings
) -> bool:
    append = case.writer.get(message)
    if append is not None:
        if append.inv <= read.comp:
            return True
        because = f"read {read.number} ended before append {append.number} of {message!r} began"
        found.add("phantom", message, (read.number, append.number), because)
        return False
    if _is_foreign(case, message, writers):
        elsewhere = writers[message]
        because = (
            f"read {read.number} of session {case.name!r} shows {message!r}, which append "
            f"{elsewhere.number} wrote to session {elsewhere.session!r}"
        )
        found.add("leak", message, (elsewhere.number, read.number), because)
    elif message in case.failed:
        because = (
            f"append {case.failed[message]} of {message!r} definitely failed, "
            f"yet read {read.number} shows it"
        )
        found.add("phantom", message, (case.failed[message], read.number), because)
    else:
        because = f"read {read.number} shows {message!r}, which nobody ever appended"
        found.add("phantom", message, (read.number,), because)
    return False


def _broken_batches(case: Case, read: Read) -> list[_Part]:
    """Those not shown whole and in one piece; only their beginning may lie before a window.

    What a store cuts off by itself are whole batches.
    """
    ids, at = read.ids, 0
    broken: dict[Append, None] = {}
    while at < len(ids):
        batch = case.writer[ids[at]]
        size = len(batch.ids)
        if batch in broken:
            at += 1
        elif ids[at : at + size] == batch.ids:
            at += size
        elif at == 0 and read.cut and not read.trimmed and (skip := _tail_of(batch, ids)):
            at += skip
        else:
            broken[batch] = None
            at += 1
    shown: dict[Append, list[int]] = {}
    for at, message in enumerate(ids if broken else ()):
        shown.setdefault(case.writer[message], []).append(at)
    return [
        _Part(read, batch, tuple(ids[at] for at in shown[batch]), shown[batch][0])
        for batch in broken
    ]


def _tail_of(batch: Append, ids: tuple[str, ...]) -> int:
    """How many messages of the batch's end stand at the beginning of the window, or 0."""
    tail = batch.ids[batch.ids.index(ids[0]) :]
    return len(tail) if ids[: len(tail)] == tail else 0


def _report_batch(
    case: Case, part: _Part, first: Mapping[str, Read], found: Findings, windows: bool
) -> None:
    read, batch, shown, start = part
    size, there = len(batch.ids), set(shown)
    rest = [message for message in batch.ids if message not in there]
    missing = [message for message in rest if message not in read.back]
    if rest and not missing:
        return  # it is all there; what came back is told by its own name
    witness: tuple[int, ...] = (batch.number, read.number)
    also = {"forgotten"} if case.may_be_forgotten(batch, read) else set()
    if shown != tuple(message for message in batch.ids if message in there):
        because = f"read {read.number} shows the messages of append {batch.number} in another order"
        found.add("reorder", shown[0], witness, because, read=read.number)
    elif missing and (known := _out_of_window(part, missing, first)) is not None:
        because = (
            f"{missing[-1]!r} was {known[1]} before read {read.number} "
            f"began and is missing from it, which asked for the newest {read.limit} and shows "
            f"{shown[-1]!r} of the same append"
        )
        also |= {"ordered"} if read.cut else set()
        found.add(
            "window",
            missing[-1],
            (known[0], read.number),
            because,
            also=also,
            spare=(first[missing[-1]].number,),
            read=read.number,
        )
    elif missing:
        because = (
            f"read {read.number} shows {size - len(missing)} of the {size} messages of append "
            f"{batch.number}, and not {missing[0]!r}"
        )
        if part.at_an_end:
            also.add("snapshot")
        if read.cut:
            also.add("ordered")  # what stands elsewhere may lie before the window
        # What was over before the read began, and is all there in another, is no batch half written.
        over = batch.comp < read.inv and all(message in first for message in missing)
        if (windows or over) and "snapshot" in also:
            because = f"{because}, and asked for the newest {read.limit}"
            also = also - {"snapshot"} | {"atomic"}
            found.add("window", missing[0], witness, because, also=also, read=read.number)
        else:
            found.add("torn", missing[0], witness, because, also=also, read=read.number)
    else:
        between = next(m for m in islice(read.ids, start, None) if m not in there)
        because = (
            f"read {read.number} shows {between!r} among the messages of append {batch.number}"
        )
        witness = (batch.number, case.writer[between].number, read.number)
        also.add("ordered")
        found.add("torn", batch.ids[0], witness, because, also=also, read=read.number)


def _out_of_window(
    part: _Part, missing: list[str], first: Mapping[str, Read]
) -> tuple[int, str] | None:
    """The operation that proves that the rest of the batch was there, if another window cut it.

    All of it was written, because other reads show it, and the last of it before the read began.
    """
    read, batch = part.read, part.batch
    if not (part.at_an_end and all(m in first for m in missing)):
        return None
    if batch.acked and batch.comp < read.inv:
        return batch.ack_number, f"acknowledged (append {batch.ack_number})"
    known = first[missing[-1]]
    return (known.number, f"shown by read {known.number}") if known.comp < read.inv else None
