"""A process of this machine on its own directory and port: started, ended, held by us."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from holdfast.errors import EngineFailed, FaultNotProven, UsageError
from holdfast.linux import descendants
from holdfast.verify import reaper
from holdfast.verify.blocks import Block
from holdfast.verify.engines.naming import describe
from holdfast.verify.engines.ports import Port, is_free, reserve_port
from holdfast.verify.instrument import Instrument, Launch
from holdfast.verify.lines import at_point, find_point
from holdfast.verify.power import Supply
from holdfast.verify.process_tree import end_tree, pause_tree
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.rundir import RunDir, Storage

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 5.0
_PORT_TRIES: Final = 5
_LOG_BYTES_MAX: Final = 256 * 1024
__tracebackhide__ = True  # in pytest: what fails is told in the error, and began in the test


class LocalProcess(Block):
    """What engines and services share. Each adds its command line and how it is asked."""

    bus_offset = 0
    """A second port that it listens on, that far above the first; 0 where it has none."""
    start_timeout_s = START_TIMEOUT_S

    def __init__(self, kind: str, storage: Storage, port: int | None) -> None:
        self.kind = kind
        self._storage: Storage = storage
        self._wanted_port = port
        self._owner = os.getpid()
        self._run_dir: RunDir | None = None
        self._port: Port | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_after_s = 0.0
        self._log_begins_at = 0
        self.instruments: list[Instrument] = []
        """What it is started under, from its next start on."""
        self._supply: Supply | None = None
        """The power of its directory, where that can be cut; closed with it."""

    # What each supplies

    def _take_run_dir(self) -> RunDir:
        """A run directory with a data directory in it."""
        return self._fresh_run_dir()

    def _fresh_run_dir(self) -> RunDir:
        run_dir = RunDir(self._storage)
        (run_dir.path / "data").mkdir(mode=0o700)
        return run_dir

    def _give_back(self, run_dir: RunDir) -> None:
        """End what still runs in the directory, and remove it."""
        run_dir.clear()

    def _prepare(self, data_dir: Path) -> None:
        """Fill the data directory before the first start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        """Whether our own process, and no other on that port, answers a question now."""
        raise NotImplementedError

    def _ask_to_stop(self) -> None:
        """Ask it to end cleanly."""
        self._running().send_signal(signal.SIGTERM)

    def _environment(self) -> dict[str, str]:
        """Ours, with the word that ties the process to its directory."""
        assert self._run_dir is not None  # noqa: S101 - start() made it
        return self._run_dir.environment

    def _working_dir(self) -> Path:
        return self.data_dir

    def _describe(self) -> str:
        """What it is, for an error's sentence."""
        return self.kind

    def __repr__(self) -> str:
        port = self._port.number if self._port else self._wanted_port
        pid = self.pid
        state = "down" if pid is None else f"running, pid {pid}"
        return describe(self, state, f"port {port}" if port else "", power=self.has_power)

    # What all have

    @property
    def port(self) -> int:
        """The port on loopback; the same after every restart."""
        if self._wanted_port is not None:
            return self._wanted_port
        if self._port is None:
            raise UsageError(f"the {self.kind} engine was not started yet: it has no port")
        return self._port.number

    @property
    def data_dir(self) -> Path:
        """Where its files are."""
        return self._home() / "data"

    @property
    def has_power(self) -> bool:
        """Whether it was started with `power`, so that this can be cut."""
        return self._supply is not None

    @property
    def pid(self) -> int | None:
        """Its first process; None while it is down."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Run it and return when it answers. On data that are there, it comes back on them."""
        if self.pid is not None:
            return self
        is_first = self._run_dir is None
        if self._run_dir is None:
            self._run_dir = self._take_run_dir()
            self._prepare(self.data_dir)
        begun = time.monotonic()
        self._launch_on_a_port()
        self._ready_after_s = time.monotonic() - begun
        if is_first and self._supply is not None:
            self._supply.settle()
        return self

    def adopt(self, data_dir: Path) -> None:
        """Come up on these data from the next start on; the directory is moved, and its own."""
        if self.pid is not None:
            raise UsageError(f"the {self.kind} engine runs: end it before it gets other data")
        if self._run_dir is None:
            self._run_dir = RunDir(self._storage)
        else:
            shutil.rmtree(self.data_dir)
        data_dir.rename(self.data_dir)

    def stop(self) -> None:
        """End it cleanly; its data stay. Stopping a stopped engine does nothing."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        tree = descendants([process.pid])
        reaper.signal_all(tree, signal.SIGCONT)  # a paused engine would never hear the request
        self._ask_to_stop()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._end()
            raise EngineFailed(
                f"{self.kind} did not stop within {STOP_TIMEOUT_S:g} s and was killed; "
                f"its last words:\n{self.log()}",
                backend=self.kind,
            ) from None
        reaper.await_gone(tree)
        self._process = None

    def close(self) -> None:
        """End it at once and remove what it left: processes, directory, shared memory, port."""
        if os.getpid() != self._owner:  # a fork of the process that owns it
            return
        if self._process is not None:
            self._end()
        if self._run_dir is not None:
            self._give_back(self._run_dir)
            self._run_dir = None
        if self._port is not None:
            self._port.release()
            self._port = None
        if self._supply is not None:
            self._supply.close()

    def log(self, lines: int = 40) -> str:
        """The last lines of its own log."""
        if self._run_dir is None:
            return ""
        with contextlib.suppress(FileNotFoundError), self._log_path().open("rb") as log:
            log.seek(max(0, self._log_path().stat().st_size - _LOG_BYTES_MAX))
            # A power cut may leave the length of what was written, and zeros in its place.
            words = log.read().replace(b"\0", b"").decode("utf-8", "replace")
            return "\n".join(words.splitlines()[-lines:])
        return ""

    def _enter(self) -> object:
        return self.start()

    # Powers

    def kill(self) -> Evidence:
        """SIGKILL every process of it and wait until each is gone."""
        pid = self._running().pid
        pids = self._end()
        return Evidence(
            "kill",
            f"{len(pids)} processes of {self.kind} ended by SIGKILL, {pid} reaped",
            {"pids": pids, "exit_code": -signal.SIGKILL},
        )

    def power_cut(self) -> Evidence:
        """End it at once and drop what it had not synced; `start` brings it back on the rest."""
        self._running()
        return supply_of(self._supply, self.kind).cut(self._end)

    def kill_at(
        self, where: str, line: int | str, *, hit: int = 1
    ) -> contextlib.AbstractContextManager[list[Evidence]]:
        """Inside the block it is killed when `"package.module:function"` reaches that line.

        The code goes on, as with an engine that died by itself. The evidence is then in the
        list; `FaultNotProven` at the end of the block where the line was never reached.
        """
        return at_point(find_point(where, line, hit=hit), self.kill)

    def pause(self) -> Evidence:
        """SIGSTOP every process of it; proven by the state of every thread in /proc."""
        return pause_tree(self._running())

    def resume(self) -> Evidence:
        """SIGCONT; proven by an answer."""
        pids = descendants([self._running().pid])
        reaper.signal_all(pids, signal.SIGCONT)
        begun = time.monotonic()
        if not await_true(self._answers, ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"{self.kind} did not answer within {ANSWER_TIMEOUT_S:g} s")
        took_ms = (time.monotonic() - begun) * 1000
        return Evidence("resume", f"answered after {took_ms:.1f} ms", {"pids": pids})

    # Inside

    def _home(self) -> Path:
        if self._run_dir is None:
            raise UsageError(f"the {self.kind} engine is not open: it has no directory")
        return self._run_dir.path

    def _log_path(self) -> Path:
        return self._home() / "engine.log"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise FaultNotProven(f"the {self.kind} engine is not running")
        return self._process

    def _launch_on_a_port(self) -> None:
        """Start; where a free port was taken by another in that instant, choose again.

        A port that was ever answered on is kept: clients hold its URL.
        """
        if self._wanted_port is not None or self._port is not None:
            self._launch()
            return
        for tries_left in reversed(range(_PORT_TRIES)):
            self._port = reserve_port(self.bus_offset)
            try:
                self._launch()
            except EngineFailed:
                taken = not is_free(self._port.number) or "already in use" in self.log()
                self._port.release()
                self._port = None
                if not taken or not tries_left:
                    raise
            else:
                return

    def _launch(self) -> None:
        """Spawn, and wait for the first answer."""
        assert self._run_dir is not None  # noqa: S101 - start() made it
        launch = Launch(tuple(self._command()), self._environment()).under(self.instruments)
        with self._log_path().open("ab") as log:
            self._log_begins_at = log.tell()
            # No preexec_fn and no user=: with either, Python forks the whole parent.
            self._process = subprocess.Popen(  # noqa: S603 - a binary that we chose
                launch.command,
                cwd=self._working_dir(),
                env=launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, not a shutdown request to the engine
                # SIGXFSZ stays ignored, as it is in Python: a full disk is an error, not the end.
                restore_signals=False,
            )
        self._run_dir.know(self._process.pid)
        if not await_true(self._answers_or_died, self.start_timeout_s):
            self._end()
            raise self._failure(f"did not answer within {self.start_timeout_s:g} s")

    def _answers_or_died(self) -> bool:
        """Whether it answers; `EngineFailed` with its own last words where it ended instead."""
        assert self._process is not None  # noqa: S101 - _launch made it
        code = self._process.poll()
        if code is not None:
            self._process = None
            raise self._failure(f"ended at start with exit code {code}")
        return self._answers()

    def _failure(self, what: str) -> EngineFailed:
        where = f"port {self.port}, data in {self.data_dir}"
        words = self._log_since_start() or "(it said nothing)"
        return EngineFailed(
            f"{self._describe()} {what} ({where}). Its last words:\n{words}",
            operation="start",
            backend=self.kind,
        )

    def _log_since_start(self) -> str:
        with self._log_path().open("rb") as log:
            size = self._log_path().stat().st_size
            log.seek(max(self._log_begins_at, size - _LOG_BYTES_MAX))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-40:])

    def _end(self) -> list[int]:
        """SIGSTOP all, SIGKILL all, reap; returns the pids. None of them runs afterwards."""
        process = self._process
        assert process is not None  # noqa: S101 - callers checked
        pids: list[int] = []
        try:
            pids = end_tree(process)
        except FaultNotProven:
            if process.poll() is None:
                raise
        self._process = None
        return pids


def supply_of(supply: Supply | None, kind: str) -> Supply:
    """The power that can be cut; `UsageError` where an engine was started without."""
    if supply is None:
        raise UsageError(
            f"the {kind} engine was started without power, so nothing was cut. In a test take the "
            f"fixture {kind}_engine_factory and call {kind}_engine_factory(power='best'); elsewhere "
            f"start_engine({kind!r}, power='best')"
        )
    return supply
