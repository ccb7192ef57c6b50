"""What each Redis topology loses of what it acknowledged when its primary changes, and for how long.

Writers append with keys and repeat what was not acknowledged. Five times the primary is lost by SIGKILL,
five times it is handed over, five times it is cut off while clients still reach it. Then every
acknowledged message is looked for. All is on loopback, where a replica is microseconds behind its
primary: between machines those that do not wait for one lose more.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from tests.redis.failovers import Load, stored

from bench.figure import Figure
from holdfast import Durability, StorageWarning
from holdfast.errors import FaultNotProven
from holdfast.verify.engines import Topology, start_engine
from holdfast.verify.proof import await_true

ROUNDS = 5
WRITERS = 3
BEFORE = 30
CUT_S = 1.0
"""So long the old primary stays cut off after another has taken its place."""


class Setup(NamedTuple):
    """A topology as people run it, and what our store waits for on it."""

    name: str
    topology: str
    settings: dict[str, str]
    require: Durability


SETUPS = (
    Setup("Sentinel, as installed", "sentinel", {}, Durability.DISK),
    Setup(
        "Sentinel, min-replicas-to-write 1",
        "sentinel",
        {"min-replicas-to-write": "1", "min-replicas-max-lag": "2"},
        Durability.DISK,
    ),
    Setup("Cluster, as installed", "cluster", {}, Durability.DISK),
    Setup("Sentinel, REPLICA", "sentinel", {}, Durability.REPLICA),
    Setup("Cluster, REPLICA", "cluster", {}, Durability.REPLICA),
)


def run() -> Iterator[Figure]:
    """Lost acks of each setup by each fault; and how long writers waited for their next ack."""
    warnings.simplefilter("ignore", StorageWarning)  # that it may lose is what is measured
    for setup in SETUPS:
        for name, strike in _FAULTS.items():
            yield _measured(setup, name, strike)


def _measured(setup: Setup, fault: str, strike: Callable[[Any], float]) -> Figure:
    with (
        start_engine(
            "redis",
            topology=setup.topology,
            settings=setup.settings,
            partitions=fault == "partition",
        ) as engine,
        contextlib.ExitStack() as stack,
    ):
        loads = [Load(engine.url, setup.require, f"w{n}.", pace_s=0) for n in range(WRITERS)]
        for load in loads:
            stack.enter_context(load)
        took, waits = [], []
        for _ in range(ROUNDS):
            for load in loads:
                load.until_more(BEFORE)
            seconds = strike(engine)
            ended_s = time.monotonic()
            cast("Topology", engine).rejoin()
            for load in loads:
                load.until_more(BEFORE)
            took.append(seconds)
            waits.append(seconds + max(load.first_ack_s(ended_s) - ended_s for load in loads))
        stack.close()
        there = set(stored(engine.url))
    acks = [one for load in loads for one in load.acknowledged]
    return Figure(
        f"{setup.name}: {fault}",
        len(set(acks) - there),
        at_most=0 if setup.require is Durability.REPLICA else None,
        unit="lost",
        detail=f"{ROUNDS} times, {len(acks)} acks; another is primary after "
        f"{statistics.median(took):.1f} s, an ack for each writer after {statistics.median(waits):.1f} s (medians)",
    )


def _failover(engine: Any) -> float:
    seconds: float = engine.failover().facts["seconds"]
    return seconds


def _switchover(engine: Any) -> float:
    seconds: float = engine.switchover().facts["seconds"]
    return seconds


def _partition(engine: Any) -> float:
    old = engine.primary()
    engine.partition(old)
    began = time.monotonic()

    def is_another() -> bool:
        with contextlib.suppress(FaultNotProven):
            return engine.primary() is not old
        return False

    if not await_true(is_another, 60, 0.02):
        raise FaultNotProven("no other member became primary")
    seconds = time.monotonic() - began
    time.sleep(CUT_S)
    engine.heal()
    return seconds


_FAULTS = {"failover": _failover, "switchover": _switchover, "partition": _partition}
