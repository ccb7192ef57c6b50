"""10,000 hostile requests to the chat, and an honest person whose answers stay below a second."""

from __future__ import annotations

import pytest

from holdfast.verify.engines.service import Service
from tests.chat.hostile import attack
from tests.chat.people import command

REQUESTS = 10_000


@pytest.mark.timeout(0)
def test_10_000_hostile_requests_slow_nobody_else_down() -> None:
    words = command("sqlite:///{data_dir}/memory.db", "--rate", "2")
    with (
        Service(words, health="/healthz", storage="disk") as service,
        Service(words, health="/healthz", storage="disk") as calm,
    ):
        seen = attack(service, REQUESTS, calm=calm)
    print(
        f"{seen.statuses}, honest: {len(seen.honest_s)} answers, slowest {max(seen.honest_s):.2f} s, "
        f"at a service beside it {max(seen.calm_s):.2f} s"
    )
    assert not seen.tracebacks
    assert sum(seen.statuses.values()) == REQUESTS
    assert seen.is_swift, seen
    assert not {status for status in seen.statuses if status >= 500 and status != 503}, seen
