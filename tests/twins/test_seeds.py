"""Sound stores raise no alarm: twenty seeds of concurrent work, with a SIGKILL in each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import holdfast
from holdfast.model import Durability
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Claims, NotClaimed, Target
from holdfast.verify.history import Event
from holdfast.verify.judge import Verdict
from holdfast.verify.suite.judging import recorded
from holdfast.verify.suite.peers import finish, listen, peers
from holdfast.verify.suite.record import Recorded, verdict
from holdfast.verify.workload import plan
from tests.twins.sound import SOUND
from tests.twins.targets import target_of

SEEDS = 20
CLIENTS = 3
STEPS = 40
OURS = ("sqlite", "redis", "postgres")


def work(seed: int, client: int, shape: plan.Shape) -> Callable[[Recorded], None]:
    # The first one goes on until it is killed.
    endless = plan.steps(seed, f"{shape.name}.c{client}", shape)

    def do(store: Recorded) -> None:
        for step in itertools.islice(endless, STEPS if client else None):
            if step.f == "append":
                store.append(step.session, step.messages, key=step.key)
            elif step.f == "history":
                store.read(step.session, step.limit)
            elif step.f == "forget":
                store.forget(step.session)
            else:
                time.sleep(step.think_ms / 1000)

    return do


def history(
    target: Target, seed: int, shape: plan.Shape, killed: plan.Shape | None = None
) -> list[Event]:
    """What a few clients see. The first is killed; it may have a load of another shape."""
    works = [work(seed, client, shape if client else killed or shape) for client in range(CLIENTS)]
    with peers(target, works) as clients:
        listen(clients, lambda: clients[0].acks() > 3 + seed)
        fault = clients[0].kill()
        events = finish(clients)
        if target.engine is not None and target.engine.kind == "sqlite":
            ended = {event.op for event in events if event.type != "invoke"}
            begun = {e.op for e in clients[0].events if e.type == "invoke" and e.op is not None}
            fault = replace(fault, closes=tuple(begun - ended))
    events.append(fault)
    with recorded(target, events) as reader:
        for session in sorted({event.session for event in events if event.session}):
            reader.read(session)
    return events


def no_alarm(target: Target, *, keyed: bool) -> None:
    for seed in range(SEEDS):
        shape = plan.Shape(f"seed-{seed}", keyed=keyed)
        result = verdict(target, history(target, seed, shape))
        words = [f"{a.promise}: {a.name}: {a.because}" for a in result.anomalies]
        assert result.verdict is Verdict.KEPT, f"seed {seed}: {result.because}: {words}"
        assert result.counts["acknowledged"] > CLIENTS


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_a_sound_store_raises_no_alarm_in_twenty_seeds(
    kind: type[Any], engine_factory: EngineFactory
):
    target = target_of(kind, engine_factory, "durable")
    no_alarm(target, keyed=kind.claims.exactly_once is True)


@pytest.mark.parametrize("kind", OURS)
def test_our_store_raises_no_alarm_in_twenty_seeds(kind: str, engine_factory: EngineFactory):
    engine = engine_factory(kind)
    claims = Claims(expiring=NotClaimed("no time to live here"), recallable=NotClaimed("no index"))
    no_alarm(
        Target(
            open=lambda: holdfast.connect(engine.url, require=Durability.MEMORY),
            engine=engine,
            claims=claims,
        ),
        keyed=True,
    )
