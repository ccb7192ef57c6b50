"""What one read shows, taken by itself: duplicate, phantom, leak, torn, and too long a window."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.verify.history import Operation
from holdfast.verify.judge.case import Append, Case, Read
from holdfast.verify.judge.findings import Findings


def check_contents(case: Case, writers: Mapping[str, Operation], found: Findings) -> None:
    """Report what no single read may show. Afterwards reads hold only what can be explained."""
    for read in case.reads:
        if read.limit is not None and len(read.ids) > read.limit:
            extra = read.ids[0]
            writer = case.writer.get(extra)
            numbers = (read.number,) if writer is None else (writer.number, read.number)
            because = (
                f"read {read.number} asked for the newest {read.limit} and got {len(read.ids)}"
            )
            found.add("window", extra, numbers, because)
        read.ids = _explained(case, read, writers, found)
        _check_batches(case, read, found)


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
    because = f"read {read.number} shows {message!r} twice, and it was appended once"
    found.add("duplicate", message, (case.writer[message].number, read.number), because)


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
    elsewhere = writers.get(message)
    if elsewhere is not None and elsewhere.session != case.name:
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


def _check_batches(case: Case, read: Read, found: Findings) -> None:
    """A batch is shown whole and in one piece; only its beginning may lie before a window."""
    ids, at = read.ids, 0
    while at < len(ids):
        batch = case.writer[ids[at]]
        size = len(batch.ids)
        if ids[at : at + size] == batch.ids:
            at += size
        elif at == 0 and read.cut and (skip := _tail_of(batch, ids)):
            at += skip
        else:
            _report_batch(case, read, batch, found)
            at += 1


def _tail_of(batch: Append, ids: tuple[str, ...]) -> int:
    """How many messages of the batch's end stand at the beginning of the window, or 0."""
    tail = batch.ids[batch.ids.index(ids[0]) :]
    return len(tail) if ids[: len(tail)] == tail else 0


def _report_batch(case: Case, read: Read, batch: Append, found: Findings) -> None:
    shown = tuple(message for message in read.ids if message in set(batch.ids))
    missing = [message for message in batch.ids if message not in shown]
    witness: tuple[int, ...] = (batch.number, read.number)
    if missing:
        because = (
            f"read {read.number} shows {len(shown)} of the {len(batch.ids)} messages of append "
            f"{batch.number}, and not {missing[0]!r}"
        )
        found.add("torn", missing[0], witness, because)
    elif shown != batch.ids:
        because = f"read {read.number} shows the messages of append {batch.number} in another order"
        found.add("reorder", shown[0], witness, because)
    else:
        first, last = read.ids.index(batch.ids[0]), read.ids.index(batch.ids[-1])
        between = next(m for m in read.ids[first:last] if m not in batch.ids)
        because = (
            f"read {read.number} shows {between!r} among the messages of append {batch.number}"
        )
        witness = (batch.number, case.writer[between].number, read.number)
        found.add("torn", batch.ids[0], witness, because)
