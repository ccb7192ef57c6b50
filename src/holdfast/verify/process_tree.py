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
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from holdfast.errors import FaultNotProven, UsageError
from holdfast.linux import Process, all_processes, descendants, is_gone, read_process, thread_states
from holdfast.verify.proof import Evidence, await_true

SIGNAL_TIMEOUT_S: Final = 30.0
"""How long a signal may take to show in /proc."""
_DEAD: Final = frozenset("ZX")
_HELD: Final = frozenset("Tt")


class Child(Protocol):
    """A process that can be waited for, such as a `Popen`."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""


def tree(pid: int) -> list[int]:
    """A process and its living descendants, parents first; empty if it is gone or a zombie."""
    return [stat.pid for stat in _tree(pid)]


def kill_tree(process: int | Child) -> Evidence:
    """SIGKILL a process and all its descendants; returns when each of them is gone.

    A child of ours is also reaped. Give the `Popen` where there is one, so that it learns its
    return code.
    """
    pids = end_tree(process)
    return Evidence(
        fault="kill",
        seen=f"{len(pids)} processes were stopped, sent SIGKILL and are gone",
        facts={"pids": pids},
    )


def end_tree(process: int | Child) -> list[int]:
    """The same as a part of something else, which has evidence of its own; returns the pids."""
    with _stopped(_pid_of(process)) as held:
        for descriptor in held.values():
            _send(descriptor, signal.SIGKILL)
        _await_states(held, _DEAD, "kill")
    _reap(process)
    return list(held)


def pause_tree(process: int | Child) -> Evidence:
    """SIGSTOP a process and all its descendants; proven by their state in /proc."""
    root = _pid_of(process)
    with _stopped(root) as held:
        # A child that had just ended stays a zombie (Z): its parent cannot reap it now.
        states = {pid: _state(pid) for pid in held}
        if states.get(root) not in _HELD:
            raise FaultNotProven(f"process {root} ended before it was stopped: states are {states}")
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
def _pidfds(stats: list[Process]) -> Iterator[dict[int, int]]:
    """A descriptor for each process that is still the one that was seen."""
    held: dict[int, int] = {}
    try:
        for stat in stats:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(stat.pid)
                held[stat.pid] = descriptor
                again = read_process(stat.pid)
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
    if not await_true(lambda: all(thread_states(pid) <= wanted for pid in held), SIGNAL_TIMEOUT_S):
        states = {pid: _state(pid) for pid in held}
        raise FaultNotProven(
            f"not seen within {SIGNAL_TIMEOUT_S:g} s: {fault}: states are {states}"
        )


def _reap(process: int | Child) -> None:
    """Take the exit status if the process is a child of ours, as nobody else can."""
    if isinstance(process, int):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)
    else:
        process.wait(timeout=SIGNAL_TIMEOUT_S)


def _pid_of(process: int | Child) -> int:
    return process if isinstance(process, int) else process.pid


def _tree(pid: int) -> list[Process]:
    table = {process.pid: process for process in all_processes()}
    found = [table[each] for each in descendants([pid], table.values()) if each in table]
    return [process for process in found if not is_gone(process.pid)]


def _state(pid: int) -> str:
    process = read_process(pid)
    return "gone" if process is None else process.state
