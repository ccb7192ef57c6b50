"""A power supply without root: what processes do is recorded, and the cut is replayed."""

from __future__ import annotations

import bisect
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.verify.blocks import Block
from holdfast.verify.instrument import Instrument, Launch
from holdfast.verify.power.trace import crash_state
from holdfast.verify.power.trace.disk_model import Loss
from holdfast.verify.power.trace.recorder import Recorder
from holdfast.verify.proof import Evidence
from holdfast.verify.rundir import RunDir, Storage

_CONTROL_TIMEOUT_S: Final = 30.0
_CONTROL: Final = """\
import os
for name, synced in (("synced", True), ("not-synced", False)):
    file = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.write(file, name.encode())
    if synced:
        os.fsync(file)
"""


class TraceSupply(Block):
    """The power of one directory, by replay: see `Supply`.

    What is lost in a cut is everything that no sync covers (`Loss.DROPPED`).
    """

    mechanism = "trace"

    def __init__(self, storage: Storage = "memory") -> None:
        """Make the directory, and pass the positive control."""
        self._run_dir = RunDir(storage)
        self._recorder: Recorder | None = None
        try:
            self._prove()
            self._recorder = self._new_recorder("data")
        except BaseException:
            self.close()
            raise
        self.instruments: tuple[Instrument, ...] = (self._recorder,)

    @property
    def directory(self) -> Path:
        """Make the data in here."""
        return self._run_dir.path / "data"

    def settle(self) -> None:
        """Whatever is in the directory now is on the disk."""
        self._running().settle()

    def cut(self, end: Callable[[], object]) -> Evidence:
        """End the processes, and put in place what was on the disk when that began.

        `FaultNotProven` where the replay of everything is not what was in the directory.
        """
        at_ns = time.monotonic_ns()
        end()
        facts = self._lose(self._running(), self.directory, at_ns)
        took_ms = (time.monotonic_ns() - at_ns) / 1e6
        lost = facts["unsynced_bytes"]
        return Evidence(
            "power",
            f"{facts['calls']} recorded calls replayed; {lost} bytes that no fsync covered dropped",
            {"mechanism": self.mechanism, "at_ns": at_ns, "took_ms": took_ms, **facts},
        )

    def close(self) -> None:
        """Remove the directory and the traces."""
        self._run_dir.clear()

    def _new_recorder(self, name: str) -> Recorder:
        (self._run_dir.path / name).mkdir(mode=0o755)
        scratch = self._run_dir.path / f"{name}-trace"
        scratch.mkdir(mode=0o700)
        return Recorder(self._run_dir.path / name, scratch)

    def _running(self) -> Recorder:
        if self._recorder is None:
            raise FaultNotProven("power cut by trace: the supply was not opened")
        return self._recorder

    def _lose(self, recorder: Recorder, directory: Path, at_ns: int) -> dict[str, int]:
        recording = recorder.finish()
        recording.prove(directory)
        disk = recording.disk()
        ended = bisect.bisect_right(recording.operations, at_ns, key=lambda done: done.at_ns)
        disk.take(recording.operations[:ended])
        crash = disk.crash(at_ns, Loss.DROPPED)
        state = self._run_dir.path / "state"
        state.mkdir(mode=0o755)
        crash_state.build(crash, recording.base, recording.kinds, state)
        crash_state.replace(directory, state)
        shutil.rmtree(state)
        recorder.restart()
        return {"unsynced_bytes": crash.dropped_bytes, "calls": len(recording.operations)}

    def _prove(self) -> None:
        """The positive control: of two writes the synced one survives, and only that one."""
        recorder = self._new_recorder("control")
        folder = self._run_dir.path / "control"
        launch = recorder.wrap(Launch((sys.executable, "-I", "-S", "-c", _CONTROL), {}))
        done = subprocess.run(  # noqa: S603 - our own program
            launch.command,
            cwd=folder,
            env=launch.environment,
            capture_output=True,
            timeout=_CONTROL_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise FaultNotProven(f"power cut by trace: nothing can be traced here: {words}")
        self._lose(recorder, folder, time.monotonic_ns())
        found = {entry.name: entry.read_text() for entry in folder.iterdir()}
        if found != {"synced": "synced"}:
            raise FaultNotProven(f"power cut by trace: the positive control left {found}")
