"""SQLite: no server, so an engine of files only; the process that opens the file is the engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from holdfast.errors import UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.clock import Clock
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.configs import settings_of
from holdfast.verify.engines.naming import describe
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.process import supply_of
from holdfast.verify.instrument import Instrument
from holdfast.verify.proof import Evidence
from holdfast.verify.rundir import RunDir


class SqliteEngine(Block):
    """A directory of its own with a database file in it. It has no process to kill."""

    provider = "local"

    def __init__(self, options: EngineOptions) -> None:
        self.kind = options.kind
        self.config = options.config
        self.settings = settings_of(options.kind, options.config, options.settings)
        if self.settings:
            raise UsageError("SQLite has no server to configure: set pragmas where you open it")
        self.binary = choose_binary(options.kind, options.version)
        self._storage = options.storage
        self._supply = options.supply
        self._clocked = options.clock
        self.clock: Clock | None = None
        """To be an instrument of those who open the file: their clock is the engine's."""
        self._owner = os.getpid()
        self._run_dir: RunDir | None = None

    def __repr__(self) -> str:
        where = "not started" if self._run_dir is None else str(self.path)
        return describe(self, where, power=self.has_power)

    @property
    def path(self) -> Path:
        """The database file; it is there once somebody opened it."""
        return self.data_dir / "memory.db"

    @property
    def url(self) -> str:
        """`sqlite:///` and the path of the file."""
        return f"sqlite:///{self.path}"

    @property
    def version(self) -> str:
        """The SQLite inside apsw."""
        return self.binary.version

    @property
    def data_dir(self) -> Path:
        """Where its files are."""
        if self._run_dir is None:
            raise UsageError("the sqlite engine is not open: it has no directory")
        return self._run_dir.path / "data"

    def start(self) -> Self:
        """Make the directory; on one that is there, nothing changes."""
        if self._run_dir is None:
            self._run_dir = RunDir(self._storage)
            self.data_dir.mkdir(mode=0o700)
            if self._supply is not None:
                self._supply.settle()
            self.clock = Clock(self._run_dir.path) if self._clocked else None
        return self

    def stop(self) -> None:
        """Nothing runs, so nothing ends; the files stay."""

    def close(self) -> None:
        """Remove the directory."""
        if self._run_dir is not None and os.getpid() == self._owner:
            self._run_dir.clear()
            self._run_dir = None
        if self._supply is not None:
            self._supply.close()

    @property
    def has_power(self) -> bool:
        """Whether it was started with `power`, so that this can be cut."""
        return self._supply is not None

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """What a process that opens the file must be started under, so that its power counts."""
        return () if self._supply is None else self._supply.instruments

    def power_cut(self, end: Callable[[], object] = lambda: None) -> Evidence:
        """Drop what is not on the disk. `end` ends every process that has the file open."""
        return supply_of(self._supply, self.kind).cut(end)

    def move_clock(self, by_s: float) -> Evidence:
        """Move the clock of the processes started under `clock`; proven by asking a new process."""
        if self.clock is None:
            raise UsageError("start_engine('sqlite', clock=True) has a clock to move")
        return self.clock.move(by_s)

    def log(self, lines: int = 40) -> str:  # noqa: ARG002 - the protocol's signature
        """Always empty: SQLite keeps none."""
        return ""

    def _enter(self) -> object:
        return self.start()
