"""Who can supply an engine: a registry of providers, and the one door to all of them.

A provider is a module with two functions, imported only when it is asked for:

    open_engine(options: EngineOptions) -> Engine    not yet started
    find_engines() -> list[Found]                    what it could start here, and how to get the rest

A new one is one line in `PROVIDERS`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from holdfast.errors import UsageError
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.instrument import Instrument

if TYPE_CHECKING:  # the mechanisms of a power cut are built upon engines
    from holdfast.verify.faults.power.supply import Supply

PROVIDERS: Final[dict[str, str]] = {
    "local": "holdfast.verify.engines.local",
    "docker": "holdfast.verify.engines.docker",
    "compose": "holdfast.verify.engines.compose",
    "url": "holdfast.verify.engines.url",
}
"""Name of the provider -> module that has its two functions."""

_POWER: Final = "holdfast.verify.faults.power"

PROVIDER_VARIABLE: Final = "HOLDFAST_PROVIDER"
"""Environment variable that names the provider where the caller names none."""

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

Storage = Literal["memory", "disk"] | Path
"""Where data directories are made: on tmpfs (fast, survives SIGKILL), on a disk, or in there."""


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


class Provider(NamedTuple):
    """The two functions of a provider."""

    open_engine: Callable[[EngineOptions], Engine]
    find_engines: Callable[[], list[Found]]


def load_provider(name: str | None = None) -> Provider:
    """The provider of this name; without one, that of HOLDFAST_PROVIDER, otherwise `local`."""
    chosen = _chosen(name)
    if chosen not in PROVIDERS:
        raise UsageError(f"no provider {chosen!r}; there are: {', '.join(PROVIDERS)}")
    module = importlib.import_module(PROVIDERS[chosen])
    return Provider(module.open_engine, module.find_engines)


def _chosen(name: str | None) -> str:
    return name or os.environ.get(PROVIDER_VARIABLE) or "local"


def open_engine(
    kind: str,
    *,
    config: str | None = None,
    version: str | None = None,
    settings: Mapping[str, object] | None = None,
    provider: str | None = None,
    storage: str | os.PathLike[str] = "memory",
    port: int | None = None,
    instruments: Sequence[Instrument] = (),
    power: str | None = None,
    clock: bool = False,
) -> Engine:
    """An engine that is not started yet: for `with`, or for `start()` at a chosen moment."""
    if kind not in KINDS:
        raise UsageError(f"no engine {kind!r}; there are: {', '.join(KINDS)}")
    if clock and _chosen(provider) != "local":
        raise UsageError("clock=True needs a process of this machine: use the provider local")
    options = EngineOptions(
        kind=kind,
        config=config or DEFAULT_CONFIG[kind],
        version=version,
        settings=as_settings(settings or {}),
        storage=_as_storage(storage),
        port=port,
        instruments=tuple(instruments),
        clock=clock,
    )
    supplier = load_provider(provider).open_engine
    return supplier(options) if power is None else _powered(options, supplier, power)


def _powered(
    options: EngineOptions, supplier: Callable[[EngineOptions], Engine], power: str
) -> Engine:
    """The engine on a directory of which the power can be cut."""
    if options.config == "cluster" or supplier.__module__ != PROVIDERS["local"]:
        raise UsageError("only the power of one engine of the provider local can be cut")
    supply = open_power(power)
    try:
        instruments = (*options.instruments, *supply.instruments)
        return supplier(
            replace(options, storage=supply.directory, supply=supply, instruments=instruments)
        )
    except BaseException:
        supply.close()
        raise


def open_power(mechanism: str) -> Supply:
    """A directory of which the power can be cut; see `holdfast.verify.faults.power`."""
    return cast("Supply", importlib.import_module(_POWER).open_supply(mechanism))


def start_engine(
    kind: str,
    *,
    config: str | None = None,
    version: str | None = None,
    settings: Mapping[str, object] | None = None,
    provider: str | None = None,
    storage: str | os.PathLike[str] = "memory",
    port: int | None = None,
    instruments: Sequence[Instrument] = (),
    power: str | None = None,
    clock: bool = False,
) -> Engine:
    """A real engine that answers. Close it, or use it in `with`: then nothing of it stays.

    `config` is a named configuration such as `aof-always`, `settings` are the engine's own
    on top of it, `version` is a prefix such as `7`, `storage` is `memory`, `disk` or a
    directory in which the engine's own one is made. With `power` (`best`, `block`, `trace` or
    `shim`) its storage is one of which the power can be cut: `engine.power_cut()`. With `clock`
    its time can be moved: `engine.move_clock(by_s)`.
    """
    engine = open_engine(
        kind,
        config=config,
        version=version,
        settings=settings,
        provider=provider,
        storage=storage,
        port=port,
        instruments=instruments,
        power=power,
        clock=clock,
    )
    try:
        return engine.start()
    except BaseException:
        engine.close()
        raise


def find_engines(provider: str | None = None) -> list[Found]:
    """Every engine that can be started here, then those that cannot and how to get them.

    Without a name all providers are asked.
    """
    names = [provider] if provider else list(PROVIDERS)
    found = [one for name in names for one in load_provider(name).find_engines()]
    return sorted(found, key=lambda one: one.version is None)


def as_settings(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as engines read them: text, with `yes` and `no` for True and False."""
    words = {True: "yes", False: "no"}
    return {
        name: words[value] if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def _as_storage(storage: str | os.PathLike[str]) -> Storage:
    if storage in ("memory", "disk"):
        return cast("Literal['memory', 'disk']", storage)
    return Path(storage)
