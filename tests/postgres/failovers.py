"""Failovers of PostgreSQL under load, for the tests and the torture."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import holdfast
from holdfast import Durability, OutcomeUnknown
from tests.contract.harness import say, texts
from tests.waiting import wait_until


def failover_under_load(topology: Any, session: str) -> tuple[int, int]:
    """How many appends were acknowledged in one failover, and how many of them are gone after it."""
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        with holdfast.connect(topology.url, require=Durability.REPLICA) as store:
            turn = 0
            while not stop.is_set():
                text = f"{number}-{turn}"
                # On a busy machine Patroni may need longer than `failover_timeout_s`.
                with contextlib.suppress(OutcomeUnknown):
                    store.append(session, say(text), key=text)
                    acknowledged.append(text)
                    turn += 1

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, number) for number in range(3)]
        try:
            wait_until(lambda: len(acknowledged) > 30)
            topology.failover()
            after = len(acknowledged)
            # A writer that has ended says why, below.
            wait_until(
                lambda: len(acknowledged) > after + 10 or any(one.done() for one in writers),
                within_s=60,
            )
        finally:
            stop.set()
        for writer in writers:
            writer.result(60)
    topology.rejoin()
    with holdfast.connect(topology.url) as store:
        found = texts(store.history(session))
    assert len(found) == len(set(found)), "a repeated append was added twice"
    return len(acknowledged), len(set(acknowledged) - set(found))
