"""The recorder: processes are started under strace, and what it wrote becomes a recording."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.linux import all_processes, command_line, status
from holdfast.verify.instrument import Launch
from holdfast.verify.power.trace import crash_state
from holdfast.verify.power.trace.calls import Call, in_order, parse
from holdfast.verify.power.trace.disk_model import PAGE_BYTES, Disk
from holdfast.verify.power.trace.inode_operations import Kind, Operation, Sync, Write
from holdfast.verify.power.trace.replay import CallReplay
from holdfast.verify.power.trace.tree import Base, copy_base
from holdfast.verify.proof import await_true

_STRING_BYTES_MAX: Final = 16 * 1024 * 1024
_END_TIMEOUT_S: Final = 20.0
_CLOCK_ERROR_NS: Final = 1_000_000
_SAMPLES: Final = 5
_UNFINISHED_MAX: Final = 6
_RAW: Final = ("read", "readv")
"""Only how far they moved the offset matters, not what was read."""


@dataclass(slots=True)
class Recording:
    """All that was done to a directory, from a base that is known."""

    base: Base
    kinds: dict[int, Kind]
    operations: list[Operation]
    unfinished: list[Operation] = field(default_factory=list)
    """Under way when their process was killed: each was done, or was not."""

    def disk(self, *, strict: bool = False) -> Disk:
        """The disk at the beginning; let it `take` the operations."""
        return Disk(self.base, self.kinds, strict=strict)

    def prove(self, live: Path) -> None:
        """Everything replayed must be what is in the directory, byte for byte.

        It is looked at with and without each call that was under way at the end.
        """
        disk = self.disk()
        disk.take(self.operations)
        wrong = crash_state.differences(disk.everything(), self.base, self.kinds, live)
        paths = {inode: live / path for path, inode in disk.everything().tree.walk()}
        begun = [_part_done(done, paths) for done in self.unfinished[:_UNFINISHED_MAX]]
        for chosen in _subsets(begun) if wrong else ():
            disk = self.disk()
            disk.take([*self.operations, *chosen])
            if not crash_state.differences(disk.everything(), self.base, self.kinds, live):
                return
        crash_state.prove_same(wrong)


class Recorder:
    """An instrument: a process started under it is recorded. Nobody else may change `directory`.

    `VerifyError` where there is no strace.
    """

    def __init__(self, directory: Path, scratch: Path) -> None:
        """Record what is done in `directory`; `scratch` is ours for traces and the base."""
        found = shutil.which("strace")
        if found is None:
            raise VerifyError(
                "the trace needs strace, and it is not here. To get it: apt-get install strace "
                "(or your system's package `strace`)"
            )
        self._strace = found
        self._root = directory.resolve()
        self._scratch = scratch
        self._numbers = itertools.count(1)
        self._base: Base | None = None
        self._offset_ns = 0
        self._since_ns = 0
        self._settled: list[int] = []

    def wrap(self, launch: Launch) -> Launch:
        """The same command, traced. Before the first, the directory is copied."""
        if self._base is None:
            self._offset_ns = clock_offset_ns()
            self._base = copy_base(self._root, self._scratch / "base")
        tracer = (
            self._strace,
            "-D",  # the tracer is a grandchild: the pid is that of the process itself
            "-ff",
            "-y",
            "-qqq",
            "--seccomp-bpf",  # other calls run at full speed
            "--absolute-timestamps=format:unix,precision:ns",
            "--syscall-times=ns",
            f"--string-limit={_STRING_BYTES_MAX}",
            f"--raw={','.join(_RAW)}",
            "--signal=none",
            f"--trace={','.join(f'?{name}' for name in CallReplay.traced)}",
            f"--output={self._scratch / f'trace-{next(self._numbers)}'}",
        )
        return Launch((*tracer, *launch.command), launch.environment)

    def settle(self) -> None:
        """Take it that what is in the directory now is on the disk."""
        self._settled.append(time.monotonic_ns())

    def finish(self) -> Recording:
        """What was recorded. Every process that uses the directory must have ended."""
        if self._base is None:
            raise FaultNotProven("power cut by trace: no process was recorded", operation="power")
        if not await_true(self._is_whole, _END_TIMEOUT_S):
            raise FaultNotProven("power cut by trace: strace did not end after its process")
        if abs(clock_offset_ns() - self._offset_ns) > _CLOCK_ERROR_NS:
            raise FaultNotProven("power cut by trace: the clock of the machine was set meanwhile")
        replay = CallReplay(str(self._root), self._base)
        replay.replay(in_order(self._calls()))
        settled = [Sync(at, at, None) for at in self._settled]
        operations = sorted([*replay.operations, *settled], key=lambda done: done.at_ns)
        return Recording(self._base, replay.kinds, operations, replay.unfinished)

    def restart(self) -> None:
        """Begin again: the directory holds something else from now on.

        Who was started under the recorder and waits goes on being recorded.
        """
        self._since_ns = time.monotonic_ns()
        self._settled.clear()
        shutil.rmtree(self._scratch / "base")
        self._base = copy_base(self._root, self._scratch / "base")

    def _calls(self) -> list[Call]:
        calls: list[Call] = []
        for file in self._scratch.glob("trace-*"):
            run, _, thread = file.name.removeprefix("trace-").partition(".")
            with file.open("rb") as lines:
                calls += parse(lines, (int(run), int(thread)), self._offset_ns)
        if not calls:
            words = "strace wrote nothing: is ptrace permitted here?"
            raise FaultNotProven(f"power cut by trace: {words}", operation="power")
        return [c for c in calls if c.counts_ns > self._since_ns or c.name in CallReplay.lasting]

    def _is_whole(self) -> bool:
        """A tracer ends after the last process that it traces; then its files are whole."""
        mark = os.fsencode(self._scratch / "trace-")
        table = all_processes()
        tracers = {p.pid for p in table if p.state not in "ZX" and mark in command_line(p.pid)}
        return tracers <= {int(status(each.pid).get("TracerPid", "0")) for each in table}


def clock_offset_ns() -> int:
    """How far the clock of the tracer (real time) is ahead of ours (monotonic).

    The shortest of a few looks: between its two readings the third was taken. Both clocks run
    at the same pace; only setting the time moves one against the other.
    """
    looks = []
    for _ in range(_SAMPLES):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        looks.append((after - before, real - (before + after) // 2))
    return min(looks)[1]


def _part_done(operation: Operation, paths: Mapping[int, Path]) -> Operation:
    """A write that was killed: it may have ended with any page, as the file shows."""
    if not isinstance(operation, Write) or operation.inode not in paths:
        return operation
    with paths[operation.inode].open("rb") as file:
        file.seek(operation.offset)
        same = crash_state.first_difference(file.read(len(operation.data)), operation.data)
    if same < len(operation.data):
        same = max(0, (operation.offset + same) // PAGE_BYTES * PAGE_BYTES - operation.offset)
    return replace(operation, data=operation.data[:same])


def _subsets(operations: list[Operation]) -> list[list[Operation]]:
    """All of them first, then fewer; never none."""
    sizes = range(len(operations), 0, -1)
    return [list(some) for size in sizes for some in itertools.combinations(operations, size)]
