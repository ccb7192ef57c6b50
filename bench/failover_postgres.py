"""What each PostgreSQL topology loses of what it acknowledged when its primary is killed, and for how long.

Writers append with keys through our store. Five times the primary is lost by SIGKILL under load; then
every acknowledged message is looked for. All is on loopback, where a standby is microseconds behind its
primary, so before each kill the log is held for a moment from those who need not have it: between
machines that moment is the network's.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import holdfast
from bench.failover import BEFORE, ROUNDS, WRITERS, Setup
from bench.figure import Figure
from holdfast import Durability, HoldfastError, Message
from holdfast.verify.engines import start_engine
from holdfast.verify.proof import await_true

HELD_S = 0.2
WAIT_S = 120.0


SETUPS = (
    Setup("Patroni, asynchronous", "patroni", {"synchronous_mode": "off"}, Durability.DISK),
    Setup(
        "Patroni, synchronous_commit=remote_write",
        "patroni",
        {"synchronous_commit": "remote_write"},
        Durability.DISK,
    ),
    Setup("Patroni, synchronous_mode, REPLICA", "patroni", {}, Durability.REPLICA),
    Setup("standby, asynchronous", "standby", {"synchronous_standby_names": ""}, Durability.DISK),
    Setup("standby, REPLICA", "standby", {}, Durability.REPLICA),
)


def run() -> Iterator[Figure]:
    """Lost acks of each setup; and how long writers waited for their next ack."""
    for setup in SETUPS:
        yield _measured(setup)


def _measured(setup: Setup) -> Figure:
    took, gaps, acks, there = [], [], [], set()
    engine: Any
    with start_engine("postgres", topology=setup.topology, settings=setup.settings) as engine:
        for at in range(ROUNDS):
            with Load(engine.url, setup.require, f"round-{at}") as load:
                load.until_more(BEFORE)
                engine.partition(engine.primary())
                time.sleep(HELD_S)  # what is measured: so long is the log behind
                began_s = time.monotonic()
                took.append(float(engine.failover().facts["seconds"]))
                load.until_more(WRITERS * 2)
                gaps.append(load.first_after(began_s) - began_s)
            engine.rejoin()
            acks += load.texts()
            with holdfast.connect(engine.url) as store:
                there |= {str(one.content) for one in store.history(f"round-{at}")}
    return Figure(
        f"{setup.name}: failover",
        len(set(acks) - there),
        at_most=0 if setup.require is Durability.REPLICA else None,
        unit="lost",
        detail=f"{ROUNDS} times, {len(acks)} acks; another is primary after "
        f"{statistics.median(took):.2f} s, first ack after {statistics.median(gaps):.2f} s (medians)",
    )


class Load:
    """Writers that append until the block ends."""

    def __init__(self, url: str, require: Durability, session: str) -> None:
        self._url, self._require, self._session = url, require, session
        self._acks: list[tuple[float, str]] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def texts(self) -> list[str]:
        """What was acknowledged."""
        return [text for _, text in self._acks]

    def until_more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self._acks) + count
        if not await_true(lambda: len(self._acks) >= wanted, WAIT_S):
            raise RuntimeError(f"{self._session}: writers stand still")

    def first_after(self, since_s: float) -> float:
        """When the first append of a new primary was acknowledged: after the longest silence."""
        times = [since_s, *(at for at, _ in self._acks if at > since_s)]
        return max(itertools.pairwise(times), key=lambda two: two[1] - two[0])[1]

    def _write(self, number: int) -> None:
        with holdfast.connect(self._url, require=self._require) as store:
            turn = 0
            while not self._stop.is_set():
                text = f"{self._session} {number}-{turn}"
                with contextlib.suppress(HoldfastError):
                    store.append(self._session, Message("user", text), key=text)
                    self._acks.append((time.monotonic(), text))
                    turn += 1
