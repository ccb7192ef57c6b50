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
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

from holdfast.errors import UsageError, did_you_mean
from holdfast.verify.engines.options import DEFAULT_CONFIG, KINDS, EngineOptions, Found, as_settings
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.instrument import Instrument
from holdfast.verify.power import open_supply
from holdfast.verify.rundir import Storage

PROVIDERS: Final[dict[str, str]] = {
    "local": "holdfast.verify.engines.local",
    "docker": "holdfast.verify.engines.docker",
    "compose": "holdfast.verify.engines.compose",
    "url": "holdfast.verify.engines.url",
}
"""Name of the provider -> module that has its two functions."""

PROVIDER_VARIABLE: Final = "HOLDFAST_PROVIDER"
"""Environment variable that names the provider where the caller names none."""


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
    topology: str | None = None,
    partitions: bool = False,
) -> Engine:
    """An engine that is not started yet: for `with`, or for `start()` at a chosen moment."""
    if kind not in KINDS:
        raise UsageError(
            f"no engine {kind!r}{did_you_mean(kind, KINDS)}; there are: {', '.join(KINDS)}"
        )
    if clock and _chosen(provider) != "local":
        raise UsageError("clock=True needs a process of this machine: use the provider local")
    if topology is not None and _chosen(provider) != "local":
        raise UsageError("a topology is made of processes of this machine: use the provider local")
    options = EngineOptions(
        kind=kind,
        config=config or DEFAULT_CONFIG[kind],
        version=version,
        settings=as_settings(settings or {}),
        storage=_as_storage(storage),
        port=port,
        instruments=tuple(instruments),
        clock=clock,
        topology=topology,
        partitions=partitions,
    )
    supplier = load_provider(provider).open_engine
    return supplier(options) if power is None else _powered(options, supplier, power)


def _powered(
    options: EngineOptions, supplier: Callable[[EngineOptions], Engine], power: str
) -> Engine:
    """The engine on a directory of which the power can be cut."""
    if options.config == "cluster" or supplier.__module__ != PROVIDERS["local"]:
        raise UsageError("only the power of one engine of the provider local can be cut")
    supply = open_supply(power)
    try:
        instruments = (*options.instruments, *supply.instruments)
        return supplier(
            replace(options, storage=supply.directory, supply=supply, instruments=instruments)
        )
    except BaseException:
        supply.close()
        raise


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
    topology: str | None = None,
    partitions: bool = False,
) -> Engine:
    """A real engine that answers. Close it, or use it in `with`: then nothing of it stays.

    `config` is a named configuration such as `aof-always`, `settings` are the engine's own
    on top of it, `version` is a prefix such as `7`, `storage` is `memory`, `disk` or a
    directory in which the engine's own one is made. With `power` (`best`, `block`, `trace` or
    `shim`) its storage is one of which the power can be cut: `engine.power_cut()`. With `clock`
    its time can be moved: `engine.move_clock(by_s)`. With `topology` (`sentinel`, `cluster`, `standby`
    or `patroni`) it is several engines that are one service (`Topology`); with `partitions` its members
    can be cut off from one another.
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
        topology=topology,
        partitions=partitions,
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


def _as_storage(storage: str | os.PathLike[str]) -> Storage:
    if storage in ("memory", "disk"):
        return cast("Literal['memory', 'disk']", storage)
    return Path(storage)
