"""10,000 hostile requests to the chat, and an honest person whose answers stay below a second.

They go on where the last run stopped (`counts`).
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from statistics import median

import pytest

from holdfast.verify.engines.service import Service
from tests.chat.hostile import attack, be_honest
from tests.chat.hostile_flood import flood
from tests.chat.people import command
from tests.torture.counts import Counts

REQUESTS = 10_000
CHUNK_REQUESTS = 500
"""Before they are counted, to one service."""


@pytest.mark.timeout(0)
def test_10_000_hostile_requests_slow_nobody_else_down(time_s: float) -> None:
    counts, end_s = Counts("chat", REQUESTS), time.monotonic() + time_s
    while counts.left and time.monotonic() < end_s:
        try:
            _chunk(min(CHUNK_REQUESTS, counts.left), seed=17 + counts.done)
        except Exception:
            counts.add(failures=1)
            raise
        counts.add(min(CHUNK_REQUESTS, counts.left))
    print(counts)


def _chunk(requests: int, *, seed: int) -> None:
    words = command("sqlite:///{data_dir}/memory.db", "--rate", "2")
    with (
        Service(words, health="/healthz", storage="disk") as service,
        Service(words, health="/healthz", storage="disk") as calm,
    ):
        seen = attack(service, requests, calm=calm, seed=seed)
    print(
        f"{seen.statuses}, honest: {len(seen.honest_s)} answers, slowest {max(seen.honest_s):.2f} s, "
        f"at a service beside it {max(seen.calm_s):.2f} s"
    )
    assert not seen.tracebacks
    assert sum(seen.statuses.values()) == requests
    assert seen.is_swift, seen
    assert not {status for status in seen.statuses if status >= 500 and status != 503}, seen


@pytest.mark.timeout(0)
@pytest.mark.parametrize("way", ["read", "new", "kept"])
def test_eight_addresses_at_full_speed_hold_nobody_up(way: str) -> None:
    """An honest person beside them is never refused, and rarely waits for a second."""
    words = command("sqlite:///{data_dir}/memory.db", "--rate", "2")
    took_s: tuple[list[float], list[float]] = ([], [])
    over, ready = threading.Event(), [threading.Event(), threading.Event()]
    with (
        Service(words, health="/healthz", storage="disk") as service,
        Service(words, health="/healthz", storage="disk") as calm,
        ProcessPoolExecutor(1, get_context("spawn")) as hostile,
        ThreadPoolExecutor(2) as people,
    ):
        honest = [
            people.submit(be_honest, url, took, one, over)
            for url, took, one in zip((service.url, calm.url), took_s, ready, strict=True)
        ]
        try:
            assert all(one.wait(60) for one in ready)
            seen = hostile.submit(flood, service.url, way, 8, 20).result()
        finally:
            over.set()
        for one in honest:
            one.result()
        log = service.log(10_000)
    for name, took in zip(("honest", "calm"), took_s, strict=True):
        print(
            f"{way} {name}: median {median(took):.2f} s, slowest {max(took):.2f} s of {len(took)}"
        )
    print(dict(seen))
    assert "Traceback" not in log
    assert median(took_s[0]) < max(1.0, 3 * median(took_s[1]))
