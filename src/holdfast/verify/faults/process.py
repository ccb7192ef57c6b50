"""Faults upon any process and all that it started: kill, pause, resume.

Descendants are found by walking /proc by parent, because a process that calls setsid (every
PostgreSQL backend does) has left its parent's process group. Before anything is killed the
whole tree is stopped, so that nothing can be forked while we look. Every process is held by a
pidfd, so that a number which the kernel gave to somebody else meanwhile is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines.protocol import Evidence

SIGNAL_TIMEOUT_S: Final = 10.0
"""How long a signal may take to show in /proc."""
_POLL_S: Final = 0.001
_DEAD: Final = frozenset("ZX")
_HELD: Final = frozenset("Tt")


class Child(Protocol):
    """A process that can be waited for, such as a `Popen`."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""


@dataclass(frozen=True, slots=True)
class _Stat:
    """One line of /proc: who it is, who started it, in what state, and since when."""

    pid: int
    state: str
    parent: int
    started: int


def tree(pid: int) -> list[int]:
    """A process and its living descendants, parents first; empty if it is gone or a zombie."""
    return [stat.pid for stat in _tree(pid)]


def kill_tree(process: int | Child) -> Evidence:
    """SIGKILL a process and all its descendants; returns when each of them is gone.

    A child of ours is also reaped. Give the `Popen` where there is one, so that it learns its
    return code.
    """
    pid = _pid_of(process)
    with _stopped(pid) as held:
        for descriptor in held.values():
            _send(descriptor, signal.SIGKILL)
        _await_states(held, _DEAD, "kill")
    _reap(process)
    return Evidence(
        fault="kill",
        seen=f"{len(held)} processes were stopped, sent SIGKILL and are gone",
        facts={"pids": list(held)},
    )


def pause_tree(process: int | Child) -> Evidence:
    """SIGSTOP a process and all its descendants; proven by their state in /proc."""
    with _stopped(_pid_of(process)) as held:
        states = {pid: _state(pid) for pid in held}
    return Evidence(
        fault="pause",
        seen=f"{len(states)} processes are in state T",
        facts={"states": states},
    )


def resume_tree(process: int | Child) -> Evidence:
    """SIGCONT a process and all its descendants; proven by their state in /proc."""
    pid = _pid_of(process)
    with _pidfds(_tree(pid)) as held:
        if not held:
            raise FaultNotProven(f"process {pid} is gone: there is nothing to resume")
        # Children first: a parent that runs again may look at them at once.
        for descriptor in reversed(held.values()):
            _send(descriptor, signal.SIGCONT)
        running = frozenset("RSDIZX")
        _await_states(held, running, "resume")
        states = {each: _state(each) for each in held}
    return Evidence(
        fault="resume", seen=f"{len(states)} processes run again", facts={"states": states}
    )


def users_of(directory: Path) -> list[int]:
    """Processes whose working directory or an open file lies at or below `directory`."""
    root = directory.resolve()
    return [pid for pid in _pids() if any(_within(path, root) for path in _paths_of(pid))]


def waited_for_cpu_s(pid: int) -> float:
    """How long a thread of it was ready to run while others did; 0 where nobody knows."""
    longest_ns = 0
    with contextlib.suppress(OSError, ValueError):  # it is gone, or this kernel does not tell
        for thread in Path(f"/proc/{pid}/task").iterdir():
            _, waited_ns, _ = (thread / "schedstat").read_text("ascii").split()
            longest_ns = max(longest_ns, int(waited_ns))
    return longest_ns / 1e9


def waits_for_disk(pid: int) -> bool:
    """Whether a process is in a call that nothing can interrupt: mostly a sync to a busy disk."""
    return _state(pid) == "D"


@contextlib.contextmanager
def _stopped(pid: int) -> Iterator[Mapping[int, int]]:
    """The pidfds of the whole tree, every process in state T, and no new one forked."""
    if pid in (0, 1, os.getpid()):
        raise UsageError(f"process {pid} is not one that a test may stop")
    with contextlib.ExitStack() as open_descriptors:
        held: dict[int, int] = {}
        while new := [stat for stat in _tree(pid) if stat.pid not in held]:
            held |= open_descriptors.enter_context(_pidfds(new))
            for descriptor in held.values():
                _send(descriptor, signal.SIGSTOP)
            _await_states(held, _HELD | _DEAD, "pause")
        if not held:
            raise FaultNotProven(f"process {pid} was gone before the fault")
        yield held


@contextlib.contextmanager
def _pidfds(stats: list[_Stat]) -> Iterator[dict[int, int]]:
    """A descriptor for each process that is still the one that was seen."""
    held: dict[int, int] = {}
    try:
        for stat in stats:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(stat.pid)
                held[stat.pid] = descriptor
                again = _stat(stat.pid)
                if again is None or again.started != stat.started:
                    os.close(held.pop(stat.pid))
        yield held
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _send(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


def _await_states(held: Mapping[int, int], wanted: frozenset[str], fault: str) -> None:
    """Return when every process is gone or has only threads in a wanted state."""
    _poll(
        lambda: all(_all_threads_in(pid, wanted) for pid in held),
        lambda: f"{fault}: states are { ({pid: _state(pid) for pid in held}) }",
    )


def _poll(condition: Callable[[], bool], words: Callable[[], str]) -> None:
    deadline = time.monotonic() + SIGNAL_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise FaultNotProven(f"not seen within {SIGNAL_TIMEOUT_S:g} s: {words()}")
        time.sleep(_POLL_S)


def _reap(process: int | Child) -> None:
    """Take the exit status if the process is a child of ours, as nobody else can."""
    if isinstance(process, int):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
    else:
        process.wait(timeout=SIGNAL_TIMEOUT_S)


def _pid_of(process: int | Child) -> int:
    return process if isinstance(process, int) else process.pid


def _tree(pid: int) -> list[_Stat]:
    stats = [stat for each in _pids() if (stat := _stat(each)) is not None]
    children: dict[int, list[_Stat]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat)
    found = [stat for stat in stats if stat.pid == pid]
    for stat in found:
        found.extend(children.get(stat.pid, []))
    return [stat for stat in found if stat.state not in _DEAD]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> _Stat | None:
    """What /proc says of a process now; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may contain anything, also ") R 1".
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid=pid, state=fields[0], parent=int(fields[1]), started=int(fields[19]))


def _state(pid: int) -> str:
    stat = _stat(pid)
    return "gone" if stat is None else stat.state


def _all_threads_in(pid: int, wanted: frozenset[str]) -> bool:
    """Whether every thread is in a wanted state; a process that is gone is in every one."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return True
    for thread in threads:
        try:
            text = (thread / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text[text.rindex(")") + 2] not in wanted:
            return False
    return True


def _paths_of(pid: int) -> Iterator[str]:
    """The working directory and open files of a process, as far as we may see them."""
    links = [Path(f"/proc/{pid}/cwd")]
    with contextlib.suppress(OSError):
        links += Path(f"/proc/{pid}/fd").iterdir()
    for link in links:
        with contextlib.suppress(OSError):
            yield str(link.readlink())


def _within(path: str, root: Path) -> bool:
    return path == str(root) or path.startswith(f"{root}/")
