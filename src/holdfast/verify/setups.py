"""Topologies as people run them: the settings, and what our store waits for. The rows of a failover card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.model import Durability


@dataclass(frozen=True, slots=True)
class Setup:
    """Settings of every member, and the level that each ack waits for."""

    settings: Mapping[str, str] = field(default_factory=dict)
    require: Durability = Durability.DISK


_REPLICA: Final = {"holdfast at REPLICA": Setup(require=Durability.REPLICA)}
_GUARDED: Final = Setup({"min-replicas-to-write": "1", "min-replicas-max-lag": "2"})
_REDIS: Final[Mapping[str, Mapping[str, Setup]]] = {
    "sentinel": {"default": Setup(), "min-replicas-to-write 1": _GUARDED, **_REPLICA},
    "cluster": {"default": Setup(), "min-replicas-to-write 1": _GUARDED, **_REPLICA},
}
SETUPS: Final[Mapping[str, Mapping[str, Mapping[str, Setup]]]] = {
    "redis": _REDIS,
    "valkey": _REDIS,
    "postgres": {
        "patroni": {
            "asynchronous": Setup({"synchronous_mode": "off"}),
            "synchronous, remote_write": Setup({"synchronous_commit": "remote_write"}),
            "synchronous": Setup(),
            **_REPLICA,
        },
        "standby": {
            "asynchronous": Setup({"synchronous_standby_names": ""}),
            "synchronous": Setup(),
            **_REPLICA,
        },
    },
}
"""Kind of engine -> topology -> name of the row -> how it is set up."""
