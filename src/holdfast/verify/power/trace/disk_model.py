"""The disk under a directory: what is on it for sure, and what may or may not be. Pure.

A change waits in the cache until a sync covers it. As on ext4 and xfs, names and sizes that were
set form one ordered journal, which any sync commits, and a file grows in order. `strict` takes
no more for granted than POSIX does: a name is on the disk only once its directory was synced,
and of what was appended any page may be there. When the power goes, what waits is lost, or some
of it is not: see `Loss`.
"""

from __future__ import annotations

import bisect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.verify.power.trace.inode_operations import (
    Copy,
    Kind,
    Names,
    Operation,
    Resize,
    Sync,
    Write,
)
from holdfast.verify.power.trace.tree import Base, Tree

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512


class Loss(StrEnum):
    """What becomes of what was not synced."""

    DROPPED = "dropped"
    """All of it is gone."""
    NAMES = "names"
    """The journal got out, the data did not: new names lead to old or empty content."""
    TORN = "torn"
    """It went out in order, and the power went in the middle of one write, between sectors."""
    PAGES = "pages"
    """Each page is in one of the states that it had since its last sync, whichever."""


@dataclass(slots=True)
class _Waiting:
    """A change of one file that no sync covers yet. `turn` is its place among all changes."""

    turn: int
    change: Write | Resize


@dataclass(slots=True)
class _File:
    kind: Kind
    synced: bytearray | None = None
    """What is on the disk; None is what the base has."""
    waiting: list[_Waiting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Crash:
    """What a machine finds when the power is back: names, and the content of files.

    Content of None is what the base has.
    """

    at_ns: int
    loss: Loss
    tree: Tree
    contents: dict[int, bytes | bytearray | None]
    dropped_bytes: int
    """What was written, not synced, and is not there."""


class Disk:
    """Takes operations in order; at any time `crash` tells what a power cut would leave."""

    def __init__(self, base: Base, kinds: dict[int, Kind], *, strict: bool = False) -> None:
        self.kinds = kinds
        self._base = base.folder
        self._strict = strict
        self._files = {inode: _File(kind) for inode, kind in kinds.items() if kind.type == "file"}
        self._tree = base.tree.copy()
        self._journal: list[tuple[int, Names | Resize]] = []
        self._turns = 0

    def take(self, operations: Iterable[Operation]) -> None:
        """Let these happen next."""
        for operation in operations:
            self._turns += 1
            if isinstance(operation, Sync):
                self._sync(operation)
            elif isinstance(operation, Names):
                self._journal.append((self._turns, operation))
            elif isinstance(operation, Resize):
                self._journal.append((self._turns, operation))
                self._wait(operation)
            elif isinstance(operation, Copy):
                self._wait(self._as_write(operation))
            else:
                self._wait(operation)
                if operation.synced:
                    end_ns = operation.at_ns
                    self._sync(Sync(end_ns, end_ns, operation.inode))

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that were written and are covered by no sync."""
        return sum(_length(w.change) for file in self._files.values() for w in file.waiting)

    @property
    def at_rest(self) -> bool:
        """Nothing waits, so that every crash leaves the same."""
        return not self._journal and not any(file.waiting for file in self._files.values())

    def everything(self) -> Crash:
        """What the directory holds while the power is on."""

        def content(file: _File) -> bytearray | None:
            return _apply(self._start(file), file.waiting) if file.waiting else file.synced

        return self._state(0, Loss.DROPPED, self._turns, content)

    def crash(self, at_ns: int, loss: Loss, seed: object = 0) -> Crash:
        """What the power leaves if it goes now; the same for the same seed."""
        chance = random.Random(f"{seed}/{at_ns}/{loss}")  # noqa: S311 - a plan, not a secret
        if loss is Loss.DROPPED:
            return self._state(at_ns, loss, 0, lambda file: file.synced)
        if loss is Loss.NAMES:
            return self._state(at_ns, loss, self._turns, self._resized(self._turns))
        if loss is Loss.TORN:
            return self._torn(at_ns, chance)
        last = chance.choice([0, *(turn for turn, _ in self._journal)])
        return self._state(at_ns, loss, last, self._paged(last, chance))

    # How it gets onto the disk

    def _wait(self, change: Write | Resize) -> None:
        self._files[change.inode].waiting.append(_Waiting(self._turns, change))

    def _as_write(self, copy: Copy) -> Write:
        source = self._files[copy.source]
        begin = copy.source_offset
        data = bytes(_apply(self._start(source), source.waiting)[begin : begin + copy.count])
        return Write(copy.began_ns, copy.at_ns, copy.inode, copy.offset, data)

    def _sync(self, sync: Sync) -> None:
        """Cover what had ended when the sync began; what ended later may have been too late."""
        chosen = [sync.inode] if sync.inode in self._files else []
        for inode in self._files if sync.inode is None else chosen:
            file = self._files[inode or 0]
            covered = _ended_by(file.waiting, sync.began_ns)
            if covered:
                file.synced = _apply(self._start(file), file.waiting[:covered])
                del file.waiting[:covered]
        if self._strict and sync.inode is not None:
            self._commit_strictly(sync)
            return
        ended = bisect.bisect_right(self._journal, sync.began_ns, key=lambda item: item[1].at_ns)
        for turn, entry in self._journal[:ended]:
            self._commit(turn, entry)
        del self._journal[:ended]

    def _commit(self, turn: int, entry: Names | Resize) -> None:
        if isinstance(entry, Names):
            self._tree.apply(entry.edits)
            return
        file = self._files[entry.inode]
        at = next((n for n, waiting in enumerate(file.waiting) if waiting.turn == turn), None)
        if at is not None:  # otherwise the file itself was synced since
            file.synced = _resize(self._start(file), entry.size)
            clipped = [_clip(waiting, entry.size) for waiting in file.waiting[:at]]
            file.waiting[: at + 1] = [waiting for waiting in clipped if waiting is not None]

    def _commit_strictly(self, sync: Sync) -> None:
        """Only names of the directory that was synced, and sizes of the file that was."""
        kept: list[tuple[int, Names | Resize]] = []
        for turn, entry in self._journal:
            ended = entry.at_ns <= sync.began_ns
            if isinstance(entry, Resize):
                if not (ended and entry.inode == sync.inode):
                    kept.append((turn, entry))
                continue
            mine = tuple(e for e in entry.edits if ended and e.directory == sync.inode)
            self._tree.apply(mine)
            rest = tuple(e for e in entry.edits if e not in mine)
            if rest:
                kept.append((turn, Names(entry.began_ns, entry.at_ns, rest)))
        self._journal = kept

    # What is left

    def _start(self, file: _File) -> bytearray:
        """A copy of what is on the disk."""
        if file.synced is not None:
            return bytearray(file.synced)
        return bytearray((self._base / file.kind.base).read_bytes() if file.kind.base else b"")

    def _state(
        self,
        at_ns: int,
        loss: Loss,
        last_turn: int,
        content: Callable[[_File], bytearray | None],
    ) -> Crash:
        """Names of the journal up to that turn, and for every file what `content` says."""
        tree = self._tree.copy()
        for turn, entry in self._journal:
            if turn <= last_turn and isinstance(entry, Names):
                tree.apply(entry.edits)
        reached = {inode for _, inode in tree.walk()}
        contents: dict[int, bytes | bytearray | None] = {}
        for inode in reached & self._files.keys():
            file = self._files[inode]
            found = content(file)
            contents[inode] = b"" if found is None and file.kind.base is None else found
        return Crash(at_ns, loss, tree, contents, self.unsynced_bytes)

    def _resized(self, last_turn: int) -> Callable[[_File], bytearray | None]:
        def content(file: _File) -> bytearray | None:
            sizes = [
                w.change.size
                for w in file.waiting
                if isinstance(w.change, Resize) and w.turn <= last_turn
            ]
            found = self._start(file) if sizes else file.synced
            for size in sizes:
                found = _resize(found or bytearray(), size)
            return found

        return content

    def _torn(self, at_ns: int, chance: random.Random) -> Crash:
        turns = sorted(
            [turn for turn, entry in self._journal if isinstance(entry, Names)]
            + [waiting.turn for file in self._files.values() for waiting in file.waiting]
        )
        last = chance.choice(turns) if turns else 0
        part = chance.random()

        def content(file: _File) -> bytearray | None:
            whole = [waiting for waiting in file.waiting if waiting.turn < last]
            torn = [_tear(waiting, part) for waiting in file.waiting if waiting.turn == last]
            return _apply(self._start(file), whole + torn) if whole or torn else file.synced

        return self._state(at_ns, Loss.TORN, last, content)

    def _paged(self, last_turn: int, chance: random.Random) -> Callable[[_File], bytearray | None]:
        def content(file: _File) -> bytearray | None:
            # What came after a new size that did not get out has no place on the disk.
            lost = next(
                (
                    n
                    for n, w in enumerate(file.waiting)
                    if isinstance(w.change, Resize) and w.turn > last_turn
                ),
                len(file.waiting),
            )
            waiting = file.waiting[:lost]
            if not waiting:
                return file.synced
            return _choose_pages(self._start(file), waiting, chance, strict=self._strict)

        return content


def _ended_by(waiting: list[_Waiting], time_ns: int) -> int:
    return bisect.bisect_right(waiting, time_ns, key=lambda one: one.change.at_ns)


def _length(change: Write | Resize) -> int:
    return len(change.data) if isinstance(change, Write) else 0


def _apply(content: bytearray, waiting: Iterable[_Waiting]) -> bytearray:
    for one in waiting:
        change = one.change
        if isinstance(change, Resize):
            content = _resize(content, change.size)
        else:
            _put(content, change.offset, change.data)
    return content


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if not data:
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> bytearray:
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    del content[size:]
    return content


def _clip(waiting: _Waiting, size: int) -> _Waiting | None:
    """The part of a write that is below a new size."""
    change = waiting.change
    if isinstance(change, Resize) or change.offset >= size:
        return None
    data = change.data[: size - change.offset]
    return _Waiting(
        waiting.turn, Write(change.began_ns, change.at_ns, change.inode, change.offset, data)
    )


def _tear(waiting: _Waiting, part: float) -> _Waiting:
    """The sectors of a write that got out: those before a boundary."""
    change = waiting.change
    if isinstance(change, Resize):
        return waiting
    first = change.offset // SECTOR_BYTES
    sectors = (change.offset + len(change.data) - 1) // SECTOR_BYTES - first + 1
    boundary = (first + int(part * sectors)) * SECTOR_BYTES
    data = change.data[: max(0, boundary - change.offset)]
    return _Waiting(
        waiting.turn, Write(change.began_ns, change.at_ns, change.inode, change.offset, data)
    )


def _choose_pages(
    content: bytearray, waiting: list[_Waiting], chance: random.Random, *, strict: bool
) -> bytearray:
    """Each page with the first few of the writes that touched it, however many by chance.

    What lies beyond the size on the disk is there up to some write, and from then on not: a
    file grows in order. Where that is not taken for granted, pages in it are as all others.
    """
    writes = [one.change for one in waiting if isinstance(one.change, Write)]
    touched = Counter(page for write in writes for page in _pages(write))
    left = {page: chance.randint(0, count) for page, count in sorted(touched.items())}
    growth = chance.randint(0, len(writes))
    size = sys.maxsize if strict else len(content)
    for one in waiting:
        change = one.change
        if isinstance(change, Resize):
            content = _resize(content, change.size)
            size = sys.maxsize if strict else change.size
            continue
        for page in _pages(change):
            if left[page] > 0:
                left[page] -= 1
                end = min((page + 1) * PAGE_BYTES, size)
                _put_part(content, change, max(change.offset, page * PAGE_BYTES), end)
        if growth > 0:
            growth -= 1
            _put_part(content, change, max(change.offset, size), sys.maxsize)
    return content


def _put_part(content: bytearray, write: Write, begin: int, end: int) -> None:
    if begin < end:
        _put(content, begin, write.data[begin - write.offset : end - write.offset])


def _pages(write: Write) -> range:
    last = (write.offset + len(write.data) - 1) // PAGE_BYTES
    return range(write.offset // PAGE_BYTES, last + 1)
