"""Reading and writing LangGraph threads through a store: steps over `checkpoint_log`."""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from holdfast import limits
from holdfast.errors import Conflict, Damaged, HoldfastError, OutcomeUnknown
from holdfast.integrations import framework_operations
from holdfast.integrations.checkpoint_log import (
    CHECKPOINT,
    FIELD,
    INDEX,
    STAGED,
    WRITES,
    Batch,
    Body,
    Catalog,
    Entry,
    Place,
    Record,
    index_of,
    rebuilt,
    record,
)
from holdfast.integrations.checkpoint_values import ReadPart, squeezed, unpack
from holdfast.model import Ack, History, Message
from holdfast.runner import Steps

R = TypeVar("R")

TRIES: Final = 5
TAIL_RECORDS: Final = 24
NEWS_RECORDS_MAX: Final = 200
PICKED_RECORDS: Final = 500
PAGE_RECORDS: Final = 1000
CACHED_THREADS_MAX: Final = 1000
CACHED_ENTRIES_MAX: Final = 200_000
"""In all catalogs that are kept in memory: some 60 MB."""
CACHED_PARTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Copies take about as much again."""
SURE_S: Final = 0.5
"""So long a thread is the one it was: a name is kept for a second at least when all of it is erased."""

IN_TURN_S: Final = 0.2
Make = Callable[[Catalog, Batch], Steps[None]]


class Moved(Exception):
    """What the index named is not there: the thread was pruned or erased meanwhile."""


class Threads:
    """The catalogs of threads that were used lately. Safe to share between threads."""

    def __init__(self) -> None:
        self._catalogs: OrderedDict[str, Catalog] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, name: str) -> Catalog | None:
        """What is in memory, which others may have added to."""
        return self._catalogs.get(name)

    def _is_sure(self, catalog: Catalog) -> bool:
        return time.monotonic() - catalog.seen_at < SURE_S

    @contextmanager
    def in_turn(self, name: str) -> Iterator[None]:
        """One thread of this process writes after the other, or all but one begin again."""
        catalog = self.known(name) or Catalog()
        is_held = catalog.writing.acquire(timeout=IN_TURN_S)  # it saves work, no more
        try:
            yield
        finally:
            if is_held:
                catalog.writing.release()

    def drop(self, name: str) -> None:
        """Begin again with the next call."""
        with self._lock:
            self._catalogs.pop(name, None)

    def parts(
        self, name: str, catalog: Catalog, wanted: Collection[tuple[int, str]]
    ) -> Steps[dict[int, ReadPart]]:
        """Parts of values, by number and digest; from memory or from the store."""
        held = catalog.parts
        found = {number: held[number] for number, _ in wanted if number in held}
        if lacking := {number for number, _ in wanted} - found.keys():
            read = yield from picked(name, lacking)
            fresh = {
                seq: ReadPart(*unpack(message.extra[FIELD]["part"]))
                for seq, message in read.items()
            }
            catalog.hold(fresh)
            with self._lock:
                self._trim()
            found |= fresh
        if any(found[number].digest != digest for number, digest in wanted):
            raise Moved  # they are of another thread that has this name now
        return found

    def _keep(self, name: str, catalog: Catalog) -> None:
        with self._lock:
            self._catalogs[name] = catalog
            self._catalogs.move_to_end(name)
            self._trim()

    def _trim(self) -> None:
        """Let go of what was used longest ago, where all of it takes too much memory."""
        entries = size = 0
        for count, (name, catalog) in enumerate(reversed([*self._catalogs.items()]), 1):
            entries += len(catalog.entries)
            size += catalog.parts_bytes
            if size > CACHED_PARTS_BYTES_MAX:
                catalog.let_go()
            if count > 1 and (entries > CACHED_ENTRIES_MAX or count > CACHED_THREADS_MAX):
                del self._catalogs[name]

    def written(self, name: str, ack: Ack, messages: Sequence[Message], sent_at: float) -> None:
        """What this process has written itself it need not read."""
        catalog = self._catalogs.get(name)
        if catalog is None or ack.first != catalog.last + 1:
            return  # others wrote in between: it is read when it is needed
        if not catalog.advance(enumerate(messages, ack.first)):
            self.drop(name)
        catalog.seen_at = sent_at

    def retried(self, name: str, steps: Callable[[], Steps[R]]) -> Steps[R]:
        """Do the steps, from the beginning if the thread was rewritten under them."""
        for _ in range(TRIES):
            try:
                return (yield from steps())
            except Moved:
                self.drop(name)
        raise Damaged(
            f"thread {name!r}: records that its index names are not there. Nothing was changed. "
            "`holdfast export` saves what can be read"
        )

    def open(self, name: str, *, full: bool = True) -> Steps[Catalog]:
        """The catalog as of now; not `full`, it may lack what is older than its first entry."""
        catalog = self._catalogs.get(name)
        if catalog is not None:
            catalog = yield from self._refreshed(name, catalog)
        if catalog is None:
            catalog = yield from _opened(name)
            if catalog.last:
                self._keep(name, catalog)
        if full and catalog.missing:
            catalog = yield from self._filled(name, catalog)
        return catalog

    def _refreshed(self, name: str, catalog: Catalog) -> Steps[Catalog | None]:
        """Read on from the last record that is known; None unless that is still there."""
        after, now = catalog.last - 1, time.monotonic()
        page: History = yield lambda store: store.history(name, after=after, limit=NEWS_RECORDS_MAX)
        news = _records(page)
        same = bool(news) and news[0][0] == after + 1 and catalog.ends_with(news[0][1])
        if same and news[-1][0] == page.last and catalog.advance(news):
            catalog.seen_at = now
            return catalog
        self.drop(name)
        return None

    def _filled(self, name: str, catalog: Catalog) -> Steps[Catalog]:
        missing = list(catalog.missing)
        try:
            catalog.fill((yield from picked(name, missing)))
        except Damaged:
            catalog = yield from _opened(name, indexed=False)
            self._keep(name, catalog)
        return catalog

    def put(
        self, name: str, place: Place, make: Make, alone: Callable[[Batch], None]
    ) -> Steps[None]:
        """Append what `make` puts together, if nobody has written since; else decide again.

        Where others write without pause, what `alone` makes is appended, which refers to nothing.
        """
        unknown: OutcomeUnknown | None = None
        begun: int | None = None
        catalog = self.known(name)
        for _ in range(TRIES):
            try:
                if catalog is None or catalog.missing or not self._is_sure(catalog):
                    catalog = yield from self.open(name)
                begun = catalog.last if begun is None else begun
                there = catalog.checkpoints.get(place)
                if unknown is not None and there is not None and there.seq > begun:
                    return  # the reply was lost, the write was not
                batch = Batch(catalog.last)
                yield from make(catalog, batch)
                sent_at = time.monotonic()
                ack: Ack = yield functools.partial(_append, name, batch.records, batch.last)
            except Moved:
                self.drop(name)
            except Conflict:
                pass
            except OutcomeUnknown as error:
                unknown = error
            except HoldfastError as error:
                raise error if unknown is None else unknown from error
            else:
                self._put_done(name, catalog, ack, batch.records, sent_at)
                return
            catalog = None
        if unknown is not None:
            raise unknown
        batch = Batch(0)
        alone(batch)
        yield from framework_operations.add(name, batch.records, retention=None)

    def _put_done(
        self, name: str, catalog: Catalog, ack: Ack, records: Sequence[Message], sent_at: float
    ) -> None:
        if not catalog.last:  # the first of a thread: its numbers are known only now
            catalog.last, catalog.seen_at = ack.first - 1, sent_at
            catalog.advance(enumerate(records, ack.first))
            self._keep(name, catalog)
        else:
            self.written(name, ack, records, sent_at)

    def add_writes(self, name: str, message: Message) -> Steps[None]:
        """Append the writes of a task; twice is once, so a lost reply needs no key."""
        unknown: OutcomeUnknown | None = None
        catalog = self.known(name)
        for _ in range(TRIES):
            try:
                if catalog is not None and not self._is_sure(catalog):
                    catalog = yield from self._refreshed(name, catalog)
                # What expects the end that is known shows that the thread was not erased since.
                expect, sent_at = None if catalog is None else catalog.last, time.monotonic()
                ack: Ack = yield functools.partial(_append, name, [message], expect)
            except Conflict:
                pass  # others wrote in between: that is read when it is needed
            except OutcomeUnknown as error:
                unknown = error
            except HoldfastError as error:
                raise error if unknown is None else unknown from error
            else:
                return None if catalog is None else self.written(name, ack, [message], sent_at)
            catalog = None
        assert unknown is not None  # noqa: S101 - only what is unknown is tried again
        raise unknown

    def keep(self, name: str, choose: Callable[[Catalog], Steps[set[Place]]]) -> Steps[None]:
        """Rewrite a thread to some of its checkpoints; one that needs no change is left alone."""
        clash: Conflict | None = None
        for _ in range(TRIES):
            catalog = yield from self.open(name)
            last = catalog.last  # a thread of this process may add to it meanwhile
            places = yield from choose(catalog)
            if len(places) == len(catalog.checkpoints):
                return
            _check_whole(name, catalog.damaged)
            rest = yield from self._rest(name, catalog, places)
            try:
                yield functools.partial(_rewrite, name, rest, last)
            except Conflict as error:
                clash = error
                continue
            finally:
                self.drop(name)
            return
        assert clash is not None  # noqa: S101 - only a clash begins again
        raise clash

    def _rest(self, name: str, catalog: Catalog, places: set[Place]) -> Steps[list[Message]]:
        kept = [
            entry
            for entry in catalog.entries
            if entry.place in places and (entry.writes or catalog.checkpoints[entry.place] is entry)
        ]
        if not kept:
            return []
        found, parts = yield from _with_parts(name, kept)
        records, entries = rebuilt(((one.seq, found[one.seq]) for one in kept), parts, {})
        batch = Batch(0, records)
        _add_anchor(batch, entries, {})
        return batch.records

    def copy(self, source: str, target: str) -> Steps[None]:
        """Add all of one thread to another; it is there as a whole with the last record."""
        catalog = yield from self.open(source)
        _check_whole(source, catalog.damaged)
        kept = [
            one for one in catalog.entries if one.writes or catalog.checkpoints[one.place] is one
        ]
        if not kept:
            return
        found, parts = yield from _with_parts(source, kept)
        numbered = ((one.seq, found[one.seq]) for one in kept)
        records, entries = rebuilt(numbered, parts, {CHECKPOINT: STAGED, WRITES: STAGED})
        for _ in range(TRIES):
            first = yield from _staged(target, records)
            if first is not None and (yield from self._anchored(target, first, entries)):
                return
        raise Conflict(
            f"others write to thread {target!r} without pause; nothing of the copy can be seen. "
            "Copy it again when they have stopped"
        )

    def _anchored(self, name: str, first: int, entries: Sequence[Entry]) -> Steps[bool]:
        """Make what was staged from number `first` on visible; False if it is gone."""
        moved = [one._replace(seq=one.seq + first - 1) for one in entries]
        for _ in range(TRIES):
            self.drop(name)
            catalog = yield from self.open(name)
            there: History = yield lambda store: store.messages(name, [first])
            if not there:
                return False
            batch = Batch(catalog.last)
            _add_anchor(batch, [*catalog.entries, *moved], catalog.runs)
            try:
                yield functools.partial(_append, name, batch.records, batch.last)
            except Conflict:
                continue
            finally:
                self.drop(name)
            return True
        return False


def _staged(name: str, records: Sequence[Message]) -> Steps[int | None]:
    """Append them one after the other; the first number, None if others wrote in between."""
    first = 0
    expect: int | None = None
    for group in _groups(records):
        try:
            ack = yield from framework_operations.add(name, group, expect=expect, retention=None)
        except Conflict:
            return None
        assert ack is not None  # noqa: S101 - no group is empty
        first, expect = first or ack.first, ack.last
    return first


def _opened(name: str, *, indexed: bool = True) -> Steps[Catalog]:
    """Read back from the end to the newest index; all, where there is none."""
    records: list[Record] = []
    now = time.monotonic()
    base, index, size = -1, None, TAIL_RECORDS if indexed else PAGE_RECORDS
    while index is None:
        before = records[0][0] if records else None
        page = _records((yield functools.partial(_page, name, before, size)))
        records = page + records
        for at in range(len(page) - 1, -1, -1):
            message = page[at][1]
            if indexed and message is not None and (index := index_of(message)) is not None:
                base = at
                break
        if len(page) < size:
            break
        size = PAGE_RECORDS
    catalog = Catalog()
    catalog.seen_at = now
    if index is None:
        catalog.last = records[0][0] - 1 if records else 0
        catalog.advance(records, indexed=False)
        return catalog
    seq = records[base][0]
    catalog.begin(seq, index)
    catalog.last = seq - 1
    catalog.advance(records[base : base + 1], indexed=False)
    if not catalog.advance(records[base + 1 :]):
        raise Moved
    return catalog


def picked(name: str, numbers: Iterable[int]) -> Steps[dict[int, Message]]:
    """These records; `Moved` where one is not there, `Damaged` where one cannot be read."""
    wanted = sorted(set(numbers))
    found: dict[int, Message] = {}
    for at in range(0, len(wanted), PICKED_RECORDS):
        some = wanted[at : at + PICKED_RECORDS]
        page: History = yield functools.partial(_pick, name, some)
        _check_whole(name, [damage.seq for damage in page.damaged])
        found.update((message.seq or 0, message) for message in page)
    if len(found) < len(wanted):
        raise Moved
    return found


def _with_parts(name: str, kept: Sequence[Entry]) -> Steps[Any]:
    """These records, and the parts that the checkpoints among them refer to."""
    found = yield from picked(name, [entry.seq for entry in kept])
    refs = [
        entry.seq - ref[0]
        for entry in kept
        if not entry.writes
        for ref in Body.of(found[entry.seq]).refs()
    ]
    return found, (yield from picked(name, refs))


def _add_anchor(batch: Batch, entries: Sequence[Entry], runs: Any) -> None:
    made = batch.add_index(entries, runs)
    batch.add(record(INDEX, {"z": squeezed({"index": batch.index_form(made)})}))


def _groups(records: Sequence[Message]) -> Iterable[Sequence[Message]]:
    """Batches that the store takes, with room for what stands around a message."""
    begin = size = 0
    for at, message in enumerate(records):
        bytes_ = len(str(message.extra)) + 1024
        if at > begin and (
            at - begin >= limits.BATCH_MESSAGES_MAX or size + bytes_ > limits.BATCH_BYTES_MAX // 2
        ):
            yield records[begin:at]
            begin, size = at, 0
        size += bytes_
    yield records[begin:]


def _records(page: History) -> list[Record]:
    found: list[Record] = [(message.seq or 0, message) for message in page]
    found += [(damage.seq, None) for damage in page.damaged]
    return sorted(found, key=lambda one: one[0])


def _check_whole(name: str, damaged: Sequence[int]) -> None:
    if damaged:
        raise Damaged(
            f"thread {name!r}: records {list(damaged)} cannot be read. Nothing was changed. "
            "`list` shows the checkpoints that can"
        )


def _page(name: str, before: int | None, limit: int, store: Any) -> Any:
    return store.history(name, before=before, limit=limit)


def _pick(name: str, numbers: Sequence[int], store: Any) -> Any:
    return store.messages(name, numbers)


def _append(name: str, records: Sequence[Message], expect: int | None, store: Any) -> Any:
    return store.append(name, records, expect=expect, retention=None)


def _rewrite(name: str, records: Sequence[Message], expect: int, store: Any) -> Any:
    return store.rewrite(name, records, expect=expect)
