"""From calls to operations: whose descriptor leads where, and at which offset. Pure.

Descriptors are traced through opens, duplicates, forks and threads; the path that strace
noted beside each is used to notice a mistake in that, never instead of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.power.trace import calls as strace
from holdfast.verify.power.trace.calls import Call
from holdfast.verify.power.trace.descriptors import OpenFile, ThreadState
from holdfast.verify.power.trace.inode_operations import (
    Copy,
    Edit,
    Kind,
    Names,
    Operation,
    Resize,
    Sync,
    Write,
)
from holdfast.verify.power.trace.tree import Base, is_volatile

_FLAG: Final = re.compile(rb"O_\w+")
_PLACE: Final = re.compile(rb"\[(\d+)\]")
_NEW_MODE: Final = 0o600


class CallReplay:
    """Replays traced system calls on the directory `root`, given as the kernel names it.

    `FaultNotProven` where something reached a file on a way that no call shows.
    """

    def __init__(self, root: str, base: Base) -> None:
        self.kinds: dict[int, Kind] = dict(base.kinds)
        self.operations: list[Operation] = []
        self.unfinished: list[Operation] = []
        """What may or may not have been done when its process was killed."""
        self._root = root
        self._tree = base.tree.copy()
        self._sizes = dict(base.sizes)
        self._threads: dict[tuple[int, int], ThreadState] = {}

    def replay(self, calls: Iterable[Call]) -> None:
        """Take calls in the order in which they count."""
        for call in calls:
            action = self._actions.get(call.name)
            if action is not None:
                action(self, call)

    # Where things are

    def _thread(self, call: Call) -> ThreadState:
        return self._threads.setdefault(call.thread, ThreadState())

    def _relative(self, path: str) -> str | None:
        """A path below the root; None for what is elsewhere or has no part in this."""
        path = posixpath.normpath(path)
        if path == self._root:
            return ""
        below = path.removeprefix(f"{self._root}/")
        return None if below == path or is_volatile(below) else below

    def _path(self, call: Call, word: bytes, at: bytes | None = None) -> str | None:
        """The path that a call names, below the root."""
        path = strace.text(word)
        thread = self._thread(call)
        folder = thread.cwd[0]
        if at is not None:
            where = strace.descriptor(at)
            folder = where.path or ""
            if where.number is None and where.path is not None:
                thread.cwd[0] = where.path
        return self._relative(posixpath.join(folder, path))

    def _file(self, call: Call, word: bytes) -> OpenFile | None:
        """The open file behind a descriptor, where it is one of the directory."""
        where = strace.descriptor(word)
        table = self._thread(call).table
        number = -1 if where.number is None else where.number
        file = table.held.get(number)
        if where.path is None:
            return file
        path = self._relative(where.path)
        if path is None:
            table.drop(number)
            return None
        if file is None and not where.deleted:
            inode = self._tree.find(path)
            if inode is not None:  # it was inherited: as a redirection, which appends
                file = OpenFile(inode, append=True)
                table.put(number, file, by_exec=False)
        return file

    def _add(self, call: Call, operation: Operation) -> None:
        (self.unfinished if call.result is None else self.operations).append(operation)

    # Descriptors

    def _opened(self, call: Call) -> None:
        words = call.words()
        by_name = call.name in ("open", "creat")
        place = self._path(call, words[0]) if by_name else self._path(call, words[1], words[0])
        flags = set(_FLAG.findall(words[1] if by_name else words[2]))
        if call.name == "creat":
            flags = {b"O_WRONLY", b"O_CREAT", b"O_TRUNC"}
        # What the kernel says the descriptor leads to: there no symbolic link is left.
        path = place if call.path is None else self._relative(call.path)
        table = self._thread(call).table
        if call.result is not None:
            table.drop(call.result)
        if path is None:
            return
        inode = self._tree.find(path)
        if inode is None and flags & {b"O_CREAT"}:
            inode = self._make(call, path, Kind("file", _mode(words[-1])))
        elif inode is not None and b"O_TRUNC" in flags:
            self._resize(call, inode, 0)
        if inode is not None and call.result is not None:
            synced = bool(flags & {b"O_SYNC", b"O_DSYNC"})
            file = OpenFile(inode, append=b"O_APPEND" in flags, synced=synced)
            table.put(call.result, file, by_exec=b"O_CLOEXEC" in flags)

    def _closed(self, call: Call) -> None:
        number = strace.descriptor(call.first()).number
        if number is not None:
            self._thread(call).table.drop(number)

    def _range_closed(self, call: Call) -> None:
        first, last, flags = call.words()
        table = self._thread(call).table
        inside = [n for n in table.held if int(first) <= n <= int(last)]
        for number in inside:
            if b"CLOEXEC" in flags:
                table.closed_by_exec.add(number)
            else:
                table.drop(number)

    def _duplicated(self, call: Call) -> None:
        words = call.words()
        if call.result is None:
            return
        file = self._file(call, words[0])
        table = self._thread(call).table
        if file is None:
            table.drop(call.result)
        else:
            table.put(call.result, file, by_exec=b"CLOEXEC" in call.arguments)

    def _controlled(self, call: Call) -> None:
        if b"F_DUPFD" in call.arguments:
            self._duplicated(call)
        elif b"F_SETFL" in call.arguments:
            words = call.words()
            file = self._file(call, words[0])
            if file is not None:
                file.append = b"O_APPEND" in words[2]
        elif b"F_SETFD" in call.arguments:
            words = call.words()
            number = strace.descriptor(words[0]).number
            file = self._file(call, words[0])
            if file is not None and number is not None:
                self._thread(call).table.put(number, file, by_exec=b"FD_CLOEXEC" in words[2])

    def _cloned(self, call: Call) -> None:
        if call.result is None:
            return
        parent = self._thread(call)
        shares = b"CLONE_FILES" in call.arguments
        table = parent.table if shares else parent.table.copy()
        cwd = parent.cwd if b"CLONE_FS" in call.arguments else list(parent.cwd)
        self._threads[call.thread[0], call.result] = ThreadState(table, cwd)

    def _executed(self, call: Call) -> None:
        thread = self._thread(call)
        thread.table = thread.table.copy()
        for number in list(thread.table.closed_by_exec):
            thread.table.drop(number)

    def _moved(self, call: Call) -> None:
        thread = self._thread(call)
        if call.name == "fchdir":
            thread.cwd[0] = strace.descriptor(call.first()).path or ""
        else:
            thread.cwd[0] = posixpath.join(thread.cwd[0], strace.text(call.first()))

    # Content

    def _read(self, call: Call) -> None:
        file = self._file(call, call.first())
        if file is not None and call.result is not None:
            file.offset += call.result

    def _sought(self, call: Call) -> None:
        file = self._file(call, call.first())
        if file is not None and call.result is not None:
            file.offset = call.result

    def _written(self, call: Call) -> None:
        file = self._file(call, call.first())
        if file is None:
            return
        words = call.words()
        data = (strace.buffers if b"iov_base" in words[1] else strace.content)(words[1])
        if data is None:
            raise _lost("a write was longer than the trace keeps")
        data = data if call.result is None else data[: call.result]
        if not data:
            return
        placed = call.name.startswith("pwrite")
        flags = words[4] if call.name == "pwritev2" else b""
        append = file.append or b"RWF_APPEND" in flags
        size = self._sizes.get(file.inode, 0)
        offset = size if append else int(words[3]) if placed else file.offset
        if not placed:
            file.offset = offset + len(data)
        synced = file.synced or b"RWF_DSYNC" in flags or b"RWF_SYNC" in flags
        self._sizes[file.inode] = max(size, offset + len(data))
        at = (call.start_ns, call.end_ns)
        self._add(call, Write(*at, file.inode, offset, data, synced))

    def _copied(self, call: Call) -> None:
        """Copied by the kernel: `sendfile` and `copy_file_range`."""
        words = call.words()
        if call.name == "sendfile":
            to, source, to_at, source_at = words[0], words[1], None, words[2]
        else:
            source, source_at, to, to_at = words[0], words[1], words[2], words[3]
        target = self._file(call, to)
        origin = self._file(call, source)
        count = call.result
        if count is None:
            return
        begin = _advance(origin, source_at, count)
        place = _advance(target, to_at, count)
        if target is None:
            return
        if origin is None:
            raise _lost("the kernel copied a file from elsewhere into the directory")
        size = self._sizes.get(target.inode, 0)
        self._sizes[target.inode] = max(size, place + count)
        at = (call.start_ns, call.end_ns)
        self._add(call, Copy(*at, target.inode, place, origin.inode, begin, count))

    def _spliced(self, call: Call) -> None:
        if self._file(call, call.words()[2]) is not None:
            raise _lost("a pipe was spliced into a file, which no call shows")

    def _truncated(self, call: Call) -> None:
        words = call.words()
        if call.name == "truncate":
            path = self._path(call, words[0])
            inode = None if path is None else self._tree.find(path)
        else:
            file = self._file(call, words[0])
            inode = None if file is None else file.inode
        if inode is not None:
            self._resize(call, inode, int(words[1]))

    def _allocated(self, call: Call) -> None:
        words = call.words()
        file = self._file(call, words[0])
        if file is None:
            return
        mode, begin, end = words[1], int(words[2]), int(words[2]) + int(words[3])
        size = self._sizes.get(file.inode, 0)
        if b"COLLAPSE" in mode or b"INSERT" in mode:
            raise _lost("a range was cut out of a file, or put in")
        if b"PUNCH" in mode or b"ZERO" in mode:
            stop = min(end, size)
            zeros = bytes(max(0, stop - begin))
            self._add(call, Write(call.start_ns, call.end_ns, file.inode, begin, zeros))
        if b"KEEP_SIZE" not in mode and end > size:
            self._resize(call, file.inode, end)

    def _resize(self, call: Call, inode: int, size: int) -> None:
        self._sizes[inode] = size
        self._add(call, Resize(call.start_ns, call.end_ns, inode, size))

    def _synced(self, call: Call) -> None:
        if call.result is None:
            return
        inode = None
        if call.name not in ("sync", "syncfs"):
            file = self._file(call, call.first())
            if file is None:
                return
            inode = file.inode
        self._add(call, Sync(call.start_ns, call.end_ns, inode))

    def _mapped(self, call: Call) -> None:
        if b"MAP_SHARED" not in call.arguments or b"PROT_WRITE" not in call.arguments:
            return
        words = call.words()
        if b"<" in words[4] and self._file(call, words[4]) is not None:
            path = strace.descriptor(words[4]).path
            raise _lost(f"{path} is written through memory (mmap), which no call shows")

    def _unseen(self, call: Call) -> None:
        raise _lost(f"the process writes through {call.name}, which no call shows")

    # Names

    def _renamed(self, call: Call) -> None:
        words = call.words()
        if call.name == "rename":
            old, new = self._path(call, words[0]), self._path(call, words[1])
        else:
            old = self._path(call, words[1], words[0])
            new = self._path(call, words[3], words[2])
        source = None if old is None else self._tree.find(old)
        if source is None or old is None:
            if new is not None:
                raise _lost(f"{new} was moved in from elsewhere")
            return
        away = Edit(*self._place(old), None)
        if new is None:
            self._name(call, away)
            return
        replaced = self._tree.find(new)
        if b"RENAME_EXCHANGE" in words[-1]:
            away = Edit(*self._place(old), replaced)
        elif replaced == source:
            return
        self._name(call, away, Edit(*self._place(new), source))

    def _linked(self, call: Call) -> None:
        words = call.words()
        if call.name == "link":
            old, new = self._path(call, words[0]), self._path(call, words[1])
        else:
            old = self._path(call, words[1], words[0])
            new = self._path(call, words[3], words[2])
        if new is None:
            return
        inode = None if old is None else self._tree.find(old)
        if inode is None:
            raise _lost(f"{new} was linked from elsewhere")
        self._name(call, Edit(*self._place(new), inode))

    def _symlinked(self, call: Call) -> None:
        words = call.words()
        path = self._path(call, words[-1], words[1] if call.name == "symlinkat" else None)
        if path is not None:
            self._make(call, path, Kind("link", leads_to=strace.text(words[0])))

    def _removed(self, call: Call) -> None:
        words = call.words()
        at = call.name == "unlinkat"
        path = self._path(call, words[1], words[0]) if at else self._path(call, words[0])
        if path is not None and self._tree.find(path) is not None:
            self._name(call, Edit(*self._place(path), None))

    def _folder_made(self, call: Call) -> None:
        words = call.words()
        at = call.name == "mkdirat"
        path = self._path(call, words[1], words[0]) if at else self._path(call, words[0])
        if path is not None:
            inode = self._make(call, path, Kind("directory", _mode(words[-1])))
            self._tree.entries.setdefault(inode, {})

    def _make(self, call: Call, path: str, kind: Kind) -> int:
        inode = len(self.kinds)
        folder, name = self._place(path)
        # Who made it is not in the trace: mostly the one whose directory it is.
        self.kinds[inode] = replace(kind, owner=self.kinds[folder].owner)
        self._sizes[inode] = 0
        self._name(call, Edit(folder, name, inode))
        return inode

    def _place(self, path: str) -> tuple[int, str]:
        folder, name = self._tree.parent(path)
        if folder is None:
            raise _lost(f"{path} is in a directory that nobody was seen to make")
        return folder, name

    def _name(self, call: Call, *edits: Edit) -> None:
        self._tree.apply(edits)
        self._add(call, Names(call.start_ns, call.end_ns, edits))

    _actions: ClassVar[dict[str, Callable[[Any, Call], None]]] = {
        name: action
        for action, names in {
            _opened: "open openat openat2 creat",
            _closed: "close",
            _range_closed: "close_range",
            _duplicated: "dup dup2 dup3",
            _controlled: "fcntl",
            _cloned: "clone clone3 fork vfork",
            _executed: "execve execveat",
            _moved: "chdir fchdir",
            _read: "read readv",
            _sought: "lseek",
            _written: "write writev pwrite64 pwritev pwritev2",
            _copied: "sendfile copy_file_range",
            _spliced: "splice",
            _truncated: "truncate ftruncate",
            _allocated: "fallocate",
            _synced: "fsync fdatasync sync syncfs",
            _mapped: "mmap",
            _unseen: "io_uring_setup io_submit",
            _renamed: "rename renameat renameat2",
            _linked: "link linkat",
            _symlinked: "symlink symlinkat",
            _removed: "unlink unlinkat rmdir",
            _folder_made: "mkdir mkdirat",
        }.items()
        for name in names.split()
    }
    traced: ClassVar = tuple(_actions)
    """Every call that has to be seen."""
    lasting: ClassVar = frozenset({"clone", "clone3", "fork", "vfork", "chdir", "execve"})
    """Those that still matter when the directory is another one: who shares with whom."""


def _advance(file: OpenFile | None, place: bytes | None, count: int) -> int:
    """Where a copy begins in a file; the file's own offset moves where none was given."""
    given = None if place is None else _PLACE.search(place)
    if given is not None:
        return int(given[1])
    if file is None:
        return 0
    file.offset += count
    return file.offset - count


def _mode(word: bytes) -> int:
    return int(word, 8) if word.isdigit() else _NEW_MODE


def _lost(why: str) -> FaultNotProven:
    return FaultNotProven(f"power cut by trace: {why}", operation="power")
