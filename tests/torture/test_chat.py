"""10,000 hostile requests to the chat, and an honest person whose answers stay below a second.

They go on where the last run stopped (`counts`).
"""

from __future__ import annotations

import time

import pytest

from holdfast.verify.engines.service import Service
from tests.chat.hostile import attack
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
