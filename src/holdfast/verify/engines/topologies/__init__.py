"""Several engines that are one service, by the name of `--topology`. A new one is a line here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from holdfast.errors import UsageError
from holdfast.verify.engines.options import EngineOptions, Found
from holdfast.verify.engines.protocol import Engine

_HERE: Final = "holdfast.verify.engines.topologies"
_REDIS: Final = {
    "sentinel": f"{_HERE}.redis_sentinel:RedisSentinel",
    "cluster": f"{_HERE}.redis_cluster:RedisReplicatedCluster",
}
TOPOLOGIES: Final[Mapping[str, Mapping[str, str]]] = {
    "redis": _REDIS,
    "valkey": _REDIS,
    "postgres": {
        "standby": f"{_HERE}.postgres_standby:PostgresStandby",
        "patroni": f"{_HERE}.postgres_patroni:PostgresPatroni",
    },
}
"""Kind of engine -> name of the topology -> its class."""

NAMES: Final = tuple(dict.fromkeys(name for known in TOPOLOGIES.values() for name in known))


def open_topology(options: EngineOptions) -> Engine:
    """The topology that `options` names, not yet started."""
    known, name = TOPOLOGIES.get(options.kind, {}), options.topology or ""
    if name not in known:
        there = ", ".join(known) or "none"
        raise UsageError(f"{options.kind} has no topology {name!r}; there are: {there}")
    if options.supply is not None or options.clock or options.port is not None:
        raise UsageError("power, clock and port are for one engine, not for a topology of several")
    module, _, found = known[name].partition(":")
    return cast("Engine", getattr(importlib.import_module(module), found)(options))


def find_topologies(engines: Sequence[Found]) -> Iterator[Found]:
    """Those whose engine is here; a module may say in `missing()` how to get what it needs besides."""
    for kind, known in TOPOLOGIES.items():
        here = [one.version for one in engines if (one.kind, one.provider) == (kind, "local")]
        version = next((one for one in here if one), None)
        for name, place in known.items():
            if version is None:
                continue
            try:
                module = importlib.import_module(place.partition(":")[0])
            except ModuleNotFoundError:  # of a later release
                continue
            missing = getattr(module, "missing", lambda: "")()
            how = f"holdfast check {kind} --topology {name}"
            yield Found(f"{kind}-{name}", "local", None if missing else version, how, missing)
