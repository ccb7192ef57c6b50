"""10,000 hostile requests to the chat, and an honest person whose answers stay below a second."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.engines.service import Service
from tests.chat.hostile import attack
from tests.chat.people import command

REQUESTS = 10_000


@pytest.mark.timeout(0)
def test_10_000_hostile_requests_slow_nobody_else_down() -> None:
    store = "sqlite:///{data_dir}/memory.db"
    service: Any = Service(command(store, "--rate", "2"), health="/healthz", storage="disk")
    with service:
        seen = attack(service, REQUESTS)
    print(
        f"{seen.statuses}, honest: {len(seen.honest_s)} answers, slowest {max(seen.honest_s):.2f} s"
    )
    assert seen.tracebacks == 0
    assert sum(seen.statuses.values()) == REQUESTS
    assert max(seen.honest_s) < 1, seen
    assert not {status for status in seen.statuses if status >= 500 and status != 503}, seen
