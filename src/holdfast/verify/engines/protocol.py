"""What an engine is, and what it may be able to do besides.

An engine is a running database on its own data directory. `Engine` is all that every one
can do; a power (kill, pause, restart, replicate) is a protocol of its own, and an engine
that lacks it simply does not have the method: ask with `isinstance(engine, Killable)`.
Every power that is a fault returns its evidence, or raises `FaultNotProven`.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from holdfast.verify.proof import Evidence


@runtime_checkable
class Engine(Protocol):
    """A real database. `start` returns when it answers; `stop` leaves no process behind."""

    kind: str
    """`redis`, `valkey`, `postgres`, `chroma` or `sqlite`."""
    provider: str
    """`local`, `docker`, `compose` or `url`."""
    config: str
    """Name of the configuration that it runs with, such as `aof-always`."""

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""

    @property
    def version(self) -> str:
        """What the running engine says of itself."""

    @property
    def data_dir(self) -> Path | None:
        """Where its files are; None where that is not for us to touch."""

    def start(self) -> Self:
        """Run it and return when it answers."""

    def stop(self) -> None:
        """End it cleanly; its data stay. Stopping a stopped engine does nothing."""

    def close(self) -> None:
        """End it and remove what it left: processes, directories, shared memory, keys."""

    def log(self, lines: int = 40) -> str:
        """The last lines of its own log."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Killable(Protocol):
    """Can be ended at once, with all that it runs."""

    def kill(self) -> Evidence:
        """SIGKILL every process of it and wait until each is gone."""


@runtime_checkable
class Pausable(Protocol):
    """Can be stopped in mid-breath, and let go on."""

    def pause(self) -> Evidence:
        """SIGSTOP every process of it; proven by their state in /proc."""

    def resume(self) -> Evidence:
        """SIGCONT; proven by an answer."""


@runtime_checkable
class Restartable(Protocol):
    """Can come back on the same data and the same URL, under other settings."""

    def restart(self, *, config: str | None = None, version: str | None = None) -> Evidence:
        """Stop if running, then start on the same data with these instead."""


@runtime_checkable
class PowerCuttable(Protocol):
    """Can lose what is not on the disk, where it was started with `power`."""

    @property
    def has_power(self) -> bool:
        """Whether it was."""

    def power_cut(self) -> Evidence:
        """End it at once and drop what it had not synced; `start` brings it back on the rest.

        Facts: `mechanism`, `unsynced_bytes`, `took_ms`, and `at_ns`, the instant of the cut on
        the monotonic clock. `UsageError` where it was started without `power`.
        """


@runtime_checkable
class Clocked(Protocol):
    """Has a wall clock that can be moved while it runs, if it was started with `clock=True`."""

    def move_clock(self, by_s: float) -> Evidence:
        """Move it, also back; proven by what the engine then says the time is."""


@runtime_checkable
class Replicable(Protocol):
    """Can have a streaming replica whose lag we control."""

    def replica(self) -> ReplicaEngine:
        """A started replica that follows this engine; closed with it."""


@runtime_checkable
class ReplicaEngine(Engine, Protocol):
    """A copy that follows another engine."""

    def pause_replay(self) -> Evidence:
        """Hold it at what it has now."""

    def resume_replay(self) -> Evidence:
        """Let it follow again."""


@runtime_checkable
class Namespaced(Protocol):
    """Shares its server with others: everything that a test writes carries this name."""

    namespace: str
    """To be part of every key, or the schema's name; unique to this engine."""
