"""Proves most sessions sound, fast: what it cannot prove goes to the rules.

In a session that nobody forgets and that never expires, reads show pieces of one row of
messages. The ids stay JSON text: a read is compared with the row as bytes, and its place found
by where it begins and ends. Then every operation has one place in the row, and the session is
sound if time agrees: nothing may end before what stands in front of it has begun.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.verify.history import NEVER_NS, Operation, Session

_NOTHING = b"[]"
_Placed = list[tuple[int, int, int]]
"""Place in the row, begin, end. Appends stand on even places, reads on the odd one after."""


def unread_if_sound(session: Session) -> int | None:
    """The acknowledged appends that no read shows, of a session proven sound; else None.

    Sound means that nothing but its numbers can be wrong with it. None proves nothing.
    """
    if any(o.status != "fail" for o in session.forgets):
        return None
    row = _Row()
    placed: _Placed = []
    for read in _longest_first(session.reads):
        if read.status == "ok":
            place = row.place(read)
            if place < 0:
                return None
            placed.append((2 * place + 1, read.invoked_ns, read.completed_ns))
    return _agrees(session.appends, row, placed)


def _longest_first(reads: list[Operation]) -> Iterable[Operation]:
    """A last read of everything holds all others, so that the row need not grow piece by piece."""
    return reversed(reads) if reads and reads[-1].limit is None else reads


class _Row:
    """The messages of a session as its reads show them, one after the other, as JSON text."""

    def __init__(self) -> None:
        self.index: dict[bytes, int] = {}
        """Each id, without its quotes, and how many stand before it."""
        self.whole = False
        """Whether the row is known to begin where the session does."""
        self._text = b""
        self._starts: list[int] = []
        self._counts: dict[int, int] = {}

    def place(self, read: Operation) -> int:
        """How many messages stand in the row up to the end of the read, or -1: no place."""
        raw, limit = read.messages, read.limit
        if raw == _NOTHING:
            return -1 if limit == 0 else 0
        before = self.index.get(raw[2 : raw.find(b'"', 2)])
        if before is None:
            # Only the first read may bring a beginning; any other makes a second row.
            before = 0
            if self._text or not self._add(b"", raw[1:-1]):
                return -1
        start = self._starts[before]
        end = start + len(raw) - 2
        inside = end <= len(self._text)
        if not (self._text.startswith(raw[1:-1], start) if inside else self._extend(raw, start)):
            return -1
        count = self._counts.get(end, -1)
        if limit is not None and count - before >= limit:
            return count if count - before == limit else -1
        # It shows everything there was, so the row begins where it does.
        self.whole = True
        return -1 if before else count

    def _extend(self, raw: bytes, start: int) -> bool:
        """Put what a read shows beyond the end of the row there, if the rest of it fits."""
        gap = b", " if raw.startswith(b", ", 1 + len(self._text) - start) else b","
        known = self._text[start:] + gap
        return raw.startswith(known, 1) and self._add(gap, raw[1 + len(known) : -1])

    def _add(self, gap: bytes, more: bytes) -> bool:
        ids = plain_ids(more)
        at = len(self._text) + len(gap)
        step = len(_comma(more))
        for message in ids:
            self.index[message] = len(self._starts)
            self._starts.append(at)
            at += len(message) + step
            self._counts[at - step + 2] = len(self._starts)
        self._text += gap + more
        return bool(ids) and len(self.index) == len(self._starts)


def _comma(text: bytes) -> bytes:
    return b'", "' if b'", "' in text else b'","'


def plain_ids(text: bytes) -> list[bytes]:
    """The ids in the inside of a JSON list; none where the text may not be the ids themselves."""
    ids = text[1:-1].split(_comma(text))
    if b"\\" in text or text.count(b'"') != 2 * len(ids) or text[:1] + text[-1:] != b'""':
        return []
    return ids


def _agrees(appends: list[Operation], row: _Row, placed: _Placed) -> int | None:
    """As `unread_if_sound`: every append needs its place too, and places the order of time."""
    unseen: list[tuple[int, int]] = []
    torn: set[int] = set()
    shown = 0
    place_of = row.index.get
    for raw, inv, comp, acked in _batches(appends):
        at = place_of(raw[2:-2])
        if at is not None:
            shown += 1
            placed.append((2 * at + 2, inv, comp))
            continue
        ids = plain_ids(raw[1:-1])
        last = place_of(ids[-1]) if ids else -1
        if last is None and row.index.keys().isdisjoint(ids):
            unseen += [(inv, comp)] * acked
            continue
        end = -1 if last is None else last + 1
        if not _in_one_piece(row, ids, end):
            return None
        shown += min(len(ids), end)
        placed.append((2 * end, inv, comp))
        torn.update(range(2 * (end - len(ids)) + 3, 2 * end, 2))
    if shown != len(row.index) or (torn and any(place in torn for place, _, _ in placed)):
        return None
    return len(unseen) if _in_time(placed, unseen, whole=row.whole) else None


def _batches(appends: list[Operation]) -> Iterable[tuple[bytes, int, int, bool]]:
    """The text of each batch, its begin and end, and whether it was acknowledged."""
    tries: dict[bytes, list[Operation]] = {}
    for operation in appends:
        if operation.status == "fail":
            continue
        if operation.key is None:
            acked = operation.status == "ok"
            yield operation.messages, operation.invoked_ns, operation.completed_ns, acked
        else:
            tries.setdefault(operation.messages, []).append(operation)
    for raw, operations in tries.items():
        acks = [o.completed_ns for o in operations if o.status == "ok"]
        end = min(acks) if acks else max(o.completed_ns for o in operations)
        yield raw, min(o.invoked_ns for o in operations), end, bool(acks)


def _in_one_piece(row: _Row, ids: list[bytes], end: int) -> bool:
    """Whether the batch ends there whole, or reaches back beyond a row that windows cut off."""
    start = end - len(ids)
    if end < 1 or (start < 0 and row.whole):
        return False
    place = row.index.get
    return all(
        place(message) == (start + i if start + i >= 0 else None) for i, message in enumerate(ids)
    )


def _in_time(placed: _Placed, unseen: list[tuple[int, int]], *, whole: bool) -> bool:
    """Whether nothing ends before something in front of it begins."""
    placed.sort()
    now = -NEVER_NS
    for _, inv, comp in placed:
        if comp < now:
            return False
        now = inv if inv > now else now  # noqa: FURB136 - twice as fast as max, a million times
    if all(comp >= now for _, comp in unseen):
        return True
    if whole:
        return False
    # What no read shows may stand in front of a row that windows cut off, but behind reads
    # that found nothing.
    row_ends = min((comp for place, _, comp in placed if place > 1), default=NEVER_NS)
    empty = max((inv for place, inv, _ in placed if place == 1), default=-NEVER_NS)
    return all(comp >= now or (inv <= row_ends and comp >= empty) for inv, comp in unseen)
