"""Writers on one file, SIGKILL at random, again and again; nothing acknowledged may be missing."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import holdfast
from tests.contract.processes import Client

WRITERS = 4
SESSIONS = 3


@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_ever_missing(
    disk_path: Path, time_s: float, chance: random.Random
):
    url = f"sqlite:///{disk_path}/memory.db"
    end, rounds, acknowledged = time.monotonic() + time_s, 0, 0
    while time.monotonic() < end:
        rounds += 1
        clients = [
            (
                session := f"s{rounds}.{chance.randrange(SESSIONS)}",
                Client(url, session, f"w{number}"),
            )
            for number in range(WRITERS)
        ]
        for _, client in clients:
            for _ in range(chance.randrange(1, 40)):
                client.read_ack()
            client.kill()
        with holdfast.connect(url) as store:
            for session, client in clients:
                history = store.history(session)
                at = {message.seq: message.content for message in history}
                for name, (first, last) in client.acks.items():
                    assert (at[first], at[last]) == (f"{name}?", f"{name}!"), (
                        f"round {rounds}: {name}"
                    )
                texts = [str(message.content) for message in history]
                assert len(set(texts)) == len(texts), f"round {rounds}: doubled"
                assert [text[:-1] for text in texts[0::2]] == [text[:-1] for text in texts[1::2]]
                acknowledged += len(client.acks)
    print(
        f"{rounds} rounds, {rounds * WRITERS} SIGKILLs, {acknowledged} acknowledged turns, 0 lost"
    )
    assert rounds
