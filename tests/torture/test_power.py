"""Power cuts again and again on every engine that claims DISK; nothing acknowledged may be missing."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, Message
from holdfast.verify.card import Subject, measure
from holdfast.verify.engines.local import open_engine
from holdfast.verify.engines.options import DEFAULT_CONFIG, EngineOptions
from holdfast.verify.power.block import BlockSupply

SOUND = ("redis", "valkey", "postgres", "sqlite")

pytestmark = pytest.mark.usefixtures("can_cut")


@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_to_a_cut_under_load(time_s: float, chance: random.Random):
    end, cuts, acknowledged = time.monotonic() + time_s / 2, 0, 0
    while time.monotonic() < end or not cuts:
        kind = chance.choice(SOUND)
        subject = Subject(kind, kind, kind, DEFAULT_CONFIG[kind], None)
        row, _ = measure(subject, "power", chance.randrange(1_000_000), 5)
        assert row.not_run is None, row.not_run
        assert row.lost == 0, f"{kind}: {row.losses}"
        cuts += len(row.losses)
        acknowledged += row.acknowledged
    print(f"{cuts} power cuts, {acknowledged} acknowledged appends, 0 lost")


@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_to_a_torn_cut(time_s: float, chance: random.Random):
    end, cuts = time.monotonic() + time_s / 2, 0
    while time.monotonic() < end or not cuts:
        kind = chance.choice(SOUND)
        supply = BlockSupply(torn=chance.randrange(1_000_000))
        options = EngineOptions(kind, DEFAULT_CONFIG[kind], storage=supply.directory, supply=supply)
        with open_engine(options) as engine:
            cuts += _rounds(engine, chance)
    print(f"{cuts} torn power cuts, 0 lost")


def _rounds(engine: Any, chance: random.Random) -> int:
    acked: list[str] = []
    rounds = 5
    for number in range(rounds):
        store = holdfast.connect(engine.url)
        for at in range(chance.randrange(1, 60)):
            text = f"{number}.{at}"
            store.append("session", [Message("user", text), Message("assistant", text)])
            acked += [text, text]
        engine.power_cut()
        with contextlib.suppress(HoldfastError):
            store.close()
        engine.start()
        with holdfast.connect(engine.url) as after:
            assert [message.content for message in after.history("session")] == acked
    return rounds
