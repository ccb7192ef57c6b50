"""What the kernel says about processes, sockets and mounts: the one reader of /proc; names that last.

A process that is gone has nothing: no parent, no thread, no open file. So has one of another user
where the kernel does not let us look, unless a function says otherwise.

It needs only the standard library, and little of that: the reaper loads it alone (see there).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_ESTABLISHED: Final = "01"
_LISTEN: Final = "0A"


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    """`R` runs, `S` and `D` wait, `T` is stopped, `t` is stopped by a tracer, `Z` has ended."""
    started: str
    """Start time in ticks since boot: with the pid, the name of a process for ever."""


class Connection(NamedTuple):
    """A TCP socket."""

    port: int
    """Its own port."""
    remote_port: int
    listens: bool
    established: bool
    name: str
    """As a descriptor of it is called: `socket:[123]`."""


class Mount(NamedTuple):
    """A mounted file system: where, of which type, and from what."""

    point: Path
    kind: str
    source: str


# Processes


def pids() -> list[int]:
    """Every process of this moment."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - speed


def read_process(pid: int) -> Process | None:
    """The process, or None where there is none."""
    fields = _stat_fields(f"/proc/{pid}/stat")
    if len(fields) < 20:  # noqa: PLR2004 - none, or one that vanished while it was read
        return None
    return Process(pid, int(fields[1]), fields[0].decode(), fields[19].decode())


def all_processes() -> list[Process]:
    """The process table of this moment."""
    return [process for pid in pids() if (process := read_process(pid))]


def descendants(roots: Iterable[int], table: Iterable[Process] | None = None) -> list[int]:
    """The roots and every process below them; parents before children."""
    by_parent: dict[int, list[int]] = {}
    for process in all_processes() if table is None else table:
        by_parent.setdefault(process.parent, []).append(process.pid)
    found = list(dict.fromkeys(roots))
    for pid in found:
        found.extend(child for child in by_parent.get(pid, ()) if child not in found)
    return found


def is_gone(pid: int) -> bool:
    """Whether the process runs no more; a zombie does not run, unless a thread of it still does.

    The first thread of a server that ends on a failed disk is a zombie, while another waits for
    that disk.
    """
    return thread_states(pid) <= {"Z", "X"}


def threads(pid: int) -> list[int]:
    """The threads of a process."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - speed
    except OSError:
        return []


def thread_states(pid: int) -> set[str]:
    """The states that the threads of a process are in."""
    stats = [_stat_fields(f"/proc/{pid}/task/{thread}/stat") for thread in threads(pid)]
    return {fields[0].decode() for fields in stats if fields}


def waited_for_cpu_s(pid: int) -> float:
    """How long a thread of it was ready to run while others did; 0 where nobody knows."""
    longest_ns = 0
    for thread in threads(pid):
        with contextlib.suppress(IndexError):  # it is gone, or this kernel does not tell
            longest_ns = max(longest_ns, int(_read(f"{pid}/task/{thread}/schedstat").split()[1]))
    return longest_ns / 1e9


def status(pid: int) -> dict[str, str]:
    """The fields of its status, such as `TracerPid`."""
    lines = _read(f"{pid}/status").decode("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def name_of(pid: int) -> str:
    """The short name of a process; `ended` if it is gone."""
    return _read(f"{pid}/comm").decode("utf-8", "replace").strip() or "ended"


def command_line(pid: int) -> bytes:
    """The words that it was started with, each ended by a zero byte."""
    return _read(f"{pid}/cmdline")


def environment(pid: int) -> bytes:
    """The environment that it was started with, or wrote in its place; a zero byte ends each word."""
    return _read(f"{pid}/environ")


def memory_map(pid: int) -> bytes:
    """The lines of its memory map, with the path of every library that it has loaded."""
    return _read(f"{pid}/maps")


def pid_namespace() -> str:
    """The number of the namespace in which this process has its pid."""
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115 - not a path


# Files


def working_dir(pid: int) -> str | None:
    """Where a process works."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - ten times as fast
    return None


def open_files(pid: int) -> Iterator[tuple[int, str]]:
    """The descriptors of a process with the names of what they lead to.

    One that is closed meanwhile is left out. `PermissionError` where we may not look.
    """
    with contextlib.suppress(*_GONE):
        for entry in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - numbers, not paths
            with contextlib.suppress(*_GONE):
                yield int(entry), os.readlink(f"/proc/{pid}/fd/{entry}")  # noqa: PTH115 - as above


def open_names(pid: int) -> set[str]:
    """The names of what a process has open."""
    with contextlib.suppress(PermissionError):
        return {name for _, name in open_files(pid)}
    return set()


def opened(pid: int | str, descriptor: int) -> str:
    """A path to what a descriptor leads to, also where the file has no name; `self` is a pid."""
    return f"/proc/{pid}/fd/{descriptor}"


def open_flags(pid: int, descriptor: int) -> int:
    """The flags of an open file, such as `os.O_DSYNC`."""
    words = _read(f"{pid}/fdinfo/{descriptor}").split()
    return int(words[words.index(b"flags:") + 1], 8) if words else 0


def users_of(directory: Path) -> list[int]:
    """Processes whose working directory or an open file lies at or below `directory`."""
    root = str(directory.resolve())
    return [pid for pid in pids() if any(is_within(name, root) for name in _names_of(pid))]


def is_within(name: str, root: str) -> bool:
    """Whether a path is `root`, or lies below it."""
    return name == root or name.startswith(f"{root}/")


def _names_of(pid: int) -> set[str]:
    at = working_dir(pid)
    return open_names(pid) if at is None else {at, *open_names(pid)}


# Sockets


def connections(pid: int | None = None) -> Iterator[Connection]:
    """The TCP sockets that processes have in this network namespace, or in that process's."""
    for table in ("tcp", "tcp6"):
        for line in _read(f"{pid or 'self'}/net/{table}").decode("ascii").splitlines()[1:]:
            _, local, remote, state, _, _, _, _, _, inode, *_ = line.split()
            if inode == "0":  # no process has it any more: a busy machine has thousands of them
                continue
            here, there = (int(end.rpartition(":")[2], 16) for end in (local, remote))
            listens, established = state == _LISTEN, state == _ESTABLISHED
            yield Connection(here, there, listens, established, f"socket:[{inode}]")


def listeners(port: int, among: Iterable[int] | None = None) -> list[int]:
    """Processes that listen on a port, as far as we may look; only `among` those if given."""
    wanted = {one.name for one in connections() if one.listens and one.port == port}
    if not wanted:
        return []
    return [pid for pid in (pids() if among is None else among) if wanted & open_names(pid)]


# Mounts


def parse_mounts(lines: Iterable[str]) -> Iterator[Mount]:
    """The mounts of a mountinfo, in the order of mounting."""
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, source = after.split()[:2]
        # The kernel writes a space, tab, newline or backslash in a path as its octal number.
        point = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before.split()[4])
        yield Mount(Path(point), kind, source)


def segment_owners() -> dict[int, int]:
    """The user who made each System V segment of shared memory."""
    rows = [line.split() for line in _read("sysvipc/shm").splitlines()[1:]]
    return {int(row[1]): int(row[9]) for row in rows}


def mounts(pid: int | None = None) -> list[Mount]:
    """The mounts that this process sees, or that one; none where /proc does not say."""
    # A path need not be UTF-8; `Path` has the other bytes as surrogates too.
    table = _read(f"{pid or 'self'}/mountinfo").decode("utf-8", "surrogateescape")
    return list(parse_mounts(table.split("\n")[:-1]))


def mount_of(path: Path, among: Iterable[Mount]) -> Mount | None:
    """The mount that holds an absolute path; None where none does."""
    holding = [mount for mount in among if path.is_relative_to(mount.point)]
    # Of two mounts on one point the later hides the earlier, so the last of the longest counts.
    return max(reversed(holding), key=lambda mount: len(str(mount.point)), default=None)


def file_system_of(path: Path, pid: int | None = None) -> str:
    """The type of the file system that holds a path, such as `ext4`; `unknown` if /proc is mute."""
    # Links of this process are known here; another one may see other folders under those names.
    mount = mount_of(path.resolve() if pid is None else path, mounts(pid))
    return "unknown" if mount is None else mount.kind


def sync_directory(directory: Path) -> None:
    """The name of a new file must survive a power cut as well as its contents."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stat_fields(path: str) -> list[bytes]:
    """The fields of a stat after the name, which stands in parentheses and may contain any."""
    try:
        # Not a Path: the whole table is read often, and a Path takes longer than the reading.
        with open(path, "rb", buffering=0) as table:  # noqa: PTH123
            return table.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _read(name: str) -> bytes:
    """A file of /proc; empty where there is none, or it is not for us to read."""
    with contextlib.suppress(OSError):
        return Path("/proc", name).read_bytes()
    return b""
