"""The provider of engines that are installed on this machine."""

from __future__ import annotations

import importlib
from typing import Final, cast

from holdfast.errors import UsageError
from holdfast.verify.engines.binaries import find_local
from holdfast.verify.engines.options import KINDS, EngineOptions, Found
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.topologies import open_topology

_CLASSES: Final = {
    "redis": "holdfast.verify.engines.redis:RedisEngine",
    "valkey": "holdfast.verify.engines.redis:RedisEngine",
    "postgres": "holdfast.verify.engines.postgres:PostgresEngine",
    "chroma": "holdfast.verify.engines.chroma:ChromaEngine",
    "sqlite": "holdfast.verify.engines.sqlite:SqliteEngine",
}
_CLUSTER: Final = "holdfast.verify.engines.cluster:RedisCluster"


def open_engine(options: EngineOptions) -> Engine:
    """An engine from a binary of this machine; `EngineMissing` where there is none."""
    if options.topology is not None:
        return open_topology(options)
    if options.clock and options.config == "cluster":
        raise UsageError("a cluster has several clocks, and clock=True moves one: start one node")
    place = _CLUSTER if options.config == "cluster" else _CLASSES[options.kind]
    module, _, name = place.partition(":")
    return cast("Engine", getattr(importlib.import_module(module), name)(options))


def find_engines() -> list[Found]:
    """What is installed here, and the command for what is not."""
    return find_local(KINDS)
