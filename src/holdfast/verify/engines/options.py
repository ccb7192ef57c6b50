"""What an engine is asked to be, and what a provider says that it has."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.verify.instrument import Instrument
from holdfast.verify.power import Supply
from holdfast.verify.rundir import Storage

KINDS: Final = ("redis", "valkey", "postgres", "chroma", "sqlite")
"""Every kind of engine."""

DEFAULT_CONFIG: Final[Mapping[str, str]] = {
    "redis": "aof-always",
    "valkey": "aof-always",
    "postgres": "default",
    "chroma": "server",
    "sqlite": "default",
}
"""The configuration that keeps what it acknowledged, for every kind."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Exactly which engine is wanted: its `kind`, its `config` and all that may differ besides."""

    kind: str
    config: str
    version: str | None = None
    """A prefix such as `7` or `6.2`; None takes the newest that is found."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The engine's own settings, over those of the configuration."""
    storage: Storage = "memory"
    """`memory`, `disk` or a directory."""
    port: int | None = None
    """None takes a free one."""
    instruments: tuple[Instrument, ...] = ()
    """What a local process is started under."""
    supply: Supply | None = None
    """The power of its directory, which it closes in the end; None where nobody cuts that."""
    clock: bool = False
    """Whether its clock can be moved: `engine.move_clock(by_s)`."""
    topology: str | None = None
    """Several engines that are one service, such as `sentinel`; None is one engine."""
    partitions: bool = False
    """Whether members of a topology can be cut off from one another."""
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    """What a Redis or a container asks for; another engine beside it has the same."""

    def for_another(self) -> EngineOptions:
        """The same for a second engine beside it: another port, and nobody's power but its own."""
        storage: Storage = self.storage if self.supply is None else "memory"
        kept = tuple(one for one in self.instruments if one not in _instruments(self.supply))
        return replace(self, port=None, storage=storage, supply=None, instruments=kept)


@dataclass(frozen=True, slots=True)
class Found:
    """One engine of a `kind` that a `provider` has, or one that it lacks and how to get it."""

    kind: str
    provider: str
    version: str | None
    """None where it was not found."""
    where: str
    """Path, image or address; where not found, the places looked at."""
    how_to_get: str = ""
    """The exact command that brings it; empty where it is already here."""


def _instruments(supply: Supply | None) -> tuple[Instrument, ...]:
    return () if supply is None else supply.instruments


def as_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as engines read them: text, with `yes` and `no` for True and False."""
    words = {True: "yes", False: "no"}
    return {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }
