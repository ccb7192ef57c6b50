"""Ends what a run leaves behind: processes, shared memory and directories.

Run as a program it is the reaper, a small process beside every process that starts engines.
It learns of each run directory before anything is started in it, and when its parent is
gone, however it went, it ends every process of that directory and removes it. The kernel's
parent-death signal cannot do this: it is tied to the *thread* that started the engine, does
not reach the engine's own children, and removes no directory.

It is started by its path and needs only the standard library and `linux.py`, so that it is there
in milliseconds (`python -I -S reaper.py PID START`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

if __name__ == "__main__":  # without what the package itself imports
    alone = sys.modules["holdfast"] = ModuleType("holdfast")
    alone.__path__ = [str(Path(__file__).parents[1])]

from holdfast.linux import (
    all_processes,
    descendants,
    environment,
    is_gone,
    is_within,
    mounts,
    pid_namespace,
    read_process,
    segment_owners,
    working_dir,
)

HELD_VARIABLE: Final = "HOLDFAST_RUN_DIR"
"""Environment variable by which a process is known to belong to a run directory."""

DIR_PREFIX: Final = "holdfast-run-"
GONE_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.001
_MNT_DETACH: Final = 2
_PID_FILE_CHARS_MAX: Final = 65_536


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send the signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def await_gone(pids: Iterable[int], timeout_s: float = GONE_TIMEOUT_S) -> list[int]:
    """Wait until none of them runs; returns those that still do after the timeout."""
    deadline = time.monotonic() + timeout_s
    left = [pid for pid in pids if not is_gone(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [pid for pid in left if not is_gone(pid)]
    return left


def processes_of(run_dir: str, known: Iterable[tuple[int, str]] = ()) -> list[int]:
    """Every process that belongs to a run directory, and all below those.

    It belongs when its working directory is inside, when its environment says so, or when
    it is known by pid and start time. One sign alone is not enough: Redis and PostgreSQL
    overwrite their environment, a service chooses its own working directory, and a data
    directory can be moved away.
    """
    table = all_processes()
    named = set(known)
    seeds = [
        process.pid
        for process in table
        if (process.pid, process.started) in named or _belongs(process.pid, run_dir)
    ]
    return [pid for pid in descendants(seeds, table) if pid != os.getpid()]


def _belongs(pid: int, run_dir: str) -> bool:
    at = working_dir(pid)
    if at is not None and is_within(at, run_dir):
        return True
    name = f"{HELD_VARIABLE}=".encode()
    words = environment(pid)
    # Looked for as a whole first: that is fast, and every process of the machine is asked.
    held = (word for word in words.split(b"\0") if word.startswith(name)) if name in words else ()
    return any(is_within(os.fsdecode(word[len(name) :]), run_dir) for word in held)


def clear(run_dir: str, known: Iterable[tuple[int, str]] = ()) -> None:
    """End every process of the run directory, free its shared memory, and remove it."""
    end_processes(run_dir, known)
    remove_dir(run_dir)


def end_processes(run_dir: str, known: Iterable[tuple[int, str]] = ()) -> None:
    """End every process of the run directory, and those that they start meanwhile."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while (pids := processes_of(run_dir, known)) and time.monotonic() < deadline:
        signal_all(pids, signal.SIGKILL)
        await_gone(pids, timeout_s=1.0)
        if all(is_gone(pid) for pid in pids):
            return


def remove_dir(run_dir: str) -> None:
    """Remove the directory, and the shared memory of a killed PostgreSQL in it.

    A disk that is mounted in it goes too; on that one an engine has a run directory of its own.
    """
    with contextlib.suppress(OSError):
        for folder in Path(run_dir).iterdir():
            free_shared_memory(folder / "postmaster.pid")
            if folder.lstat().st_uid == os.geteuid():  # else somebody may have put links there
                for pid_file in folder.glob("*/data/postmaster.pid"):
                    free_shared_memory(pid_file)
    for mount in reversed(mounts()):
        if str(mount.point).startswith(f"{run_dir}/"):
            ctypes.CDLL(None).umount2(os.fsencode(mount.point), _MNT_DETACH)
    shutil.rmtree(run_dir, ignore_errors=True)


def free_shared_memory(pid_file: Path) -> None:
    """Remove the System V segment that a killed postmaster named in its pid file."""
    remove_segment(segment_of(pid_file))


def segment_of(pid_file: Path) -> int | None:
    """The System V segment that a postmaster names in its pid file; None if it names none.

    Where root runs the kit, another user may write that file: a link is not followed, and no
    segment of anybody else is believed to be the server's.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(os.open(pid_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:  # noqa: PTH123
            segment = int(file.read(_PID_FILE_CHARS_MAX).splitlines()[6].split()[1])
            owner = os.fstat(file.fileno()).st_uid
        if segment_owners().get(segment) == owner:
            return segment
    return None


def remove_segment(segment: int | None) -> None:
    """Remove a System V segment of shared memory."""
    if segment is not None:
        ctypes.CDLL(None).shmctl(segment, 0, None)  # 0 is IPC_RMID


def sweep(root: str) -> None:
    """Clear the run directories in `root` whose owner, and its reaper, died.

    The owner is in the directory's name, with its pid namespace: what another container
    left in a shared directory is not ours to judge. Nor is what another user put there: in it
    may be a pid file that names a living server's shared memory.
    """
    with contextlib.suppress(OSError):
        for entry in os.scandir(root):
            if entry.name.startswith(DIR_PREFIX) and _is_ours(entry) and _is_orphan(entry.name):
                clear(entry.path)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):  # its owner removes it at this moment
        found = entry.stat(follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def owner_name(pid: int) -> str:
    """How a run directory names its owner: pid namespace, pid, start time."""
    process = read_process(pid)
    started = process.started if process else "0"
    return f"{pid_namespace()}-{pid}-{started}"


def _is_orphan(name: str) -> bool:
    parts = name.removeprefix(DIR_PREFIX).split("-")
    if len(parts) != 4 or parts[0] != pid_namespace() or not parts[1].isdecimal():  # noqa: PLR2004
        return False
    process = read_process(int(parts[1]))
    return process is None or process.started != parts[2]


class Reaper:
    """What the reaper knows: run directories, and the processes named for each."""

    def __init__(self) -> None:
        self.held: dict[str, set[tuple[int, str]]] = {}

    def hear(self, line: str) -> None:
        """`hold DIR`, `pid PID START DIR`, `free DIR` or `sweep ROOT`."""
        verb, _, rest = line.partition(" ")
        if verb == "hold":
            self.held.setdefault(rest, set())
        elif verb == "free":
            self.held.pop(rest, None)
        elif verb == "pid":
            pid, started, run_dir = rest.split(" ", 2)
            self.held.setdefault(run_dir, set()).add((int(pid), started))
        elif verb == "sweep":
            sweep(rest)

    def clear(self) -> None:
        """Clear all that is still held; the last first, as one may lie in an earlier one."""
        for run_dir, known in reversed(self.held.items()):
            clear(run_dir, known)


def main() -> None:
    """Listen until the parent is gone, then clear what it still held."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent, started = int(sys.argv[1]), sys.argv[2]
    reaper = Reaper()
    try:
        watch = os.pidfd_open(parent)
    except ProcessLookupError:
        watch = -1
    alive = read_process(parent)
    if watch >= 0 and alive and alive.started == started:
        _listen(reaper, watch)
    _drain(reaper)
    reaper.clear()


def _listen(reaper: Reaper, watch: int) -> None:
    buffer = b""
    while True:
        ready, _, _ = select.select([0, watch], [], [])
        if 0 in ready:
            chunk = os.read(0, 65536)
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                reaper.hear(line.decode("utf-8", "surrogateescape"))
            if not chunk:
                return
        elif watch in ready:
            return


def _drain(reaper: Reaper) -> None:
    """Take in what the parent wrote before it died; a fork may hold the pipe open, so no wait."""
    os.set_blocking(0, False)
    rest = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(0, 65536):
            rest += chunk
    for line in rest.split(b"\n"):
        reaper.hear(line.decode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
