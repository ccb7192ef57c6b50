"""The provider of engines that are installed on this machine."""

from __future__ import annotations

import importlib
from typing import Final, cast

from holdfast.errors import UsageError
from holdfast.verify.engines.binaries import find_local
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.providers import KINDS, Found, Order

_CLASSES: Final = {
    "redis": "holdfast.verify.engines.redis:RedisEngine",
    "valkey": "holdfast.verify.engines.redis:RedisEngine",
    "postgres": "holdfast.verify.engines.postgres:PostgresEngine",
    "chroma": "holdfast.verify.engines.chroma:ChromaEngine",
    "sqlite": "holdfast.verify.engines.sqlite:SqliteEngine",
}
_CLUSTER: Final = "holdfast.verify.engines.cluster:RedisCluster"


def open_engine(order: Order) -> Engine:
    """An engine from a binary of this machine; `EngineMissing` where there is none."""
    if order.clock and order.config == "cluster":
        raise UsageError("a cluster has several clocks, and clock=True moves one: start one node")
    place = _CLUSTER if order.config == "cluster" else _CLASSES[order.kind]
    module, _, name = place.partition(":")
    return cast("Engine", getattr(importlib.import_module(module), name)(order))


def find_engines() -> list[Found]:
    """What is installed here, and the command for what is not."""
    return find_local(KINDS)
