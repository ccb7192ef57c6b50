"""Small random histories of one session: a sound store's, or one that was then meddled with."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from holdfast.verify.history import (
    Event,
    Header,
    History,
    event_json,
    header_json,
    parse_history,
)
from tests.verify.judge.oracle import NEVER_NS, Op


def to_history(
    ops: list[Op], header: Header | None = None, faults: tuple[Event, ...] = ()
) -> History:
    """The same operations as the judge reads them, through the public format."""
    lines = [header_json(header or Header("random"))]
    lines += [event_json(event) for event in sorted([*_events(ops), *faults], key=_when)]
    return parse_history(iter(json.dumps(line).encode() + b"\n" for line in lines))


def _when(event: Event) -> tuple[int, bool]:
    return event.time_ns, event.type != "invoke"


def _events(ops: list[Op]) -> Iterator[Event]:
    for op in ops:
        wrote = op.messages if op.f == "append" else None
        yield Event(
            "invoke", op.inv, op.number, op.process, op.f, op.session, wrote, op.limit, key=op.key
        )
        if op.status == "info" and op.comp < NEVER_NS:
            yield Event("fault", op.comp, name="kill", closes=(op.number,))
        elif op.status != "info":
            got = op.messages if op.f == "history" and op.status == "ok" else None
            yield Event(op.status, op.comp, op.number, messages=got, seqs=op.seqs)


def random_ops(
    rng: random.Random,
    *,
    forgets: bool,
    limits: bool,
    size: tuple[int, int] = (3, 8),
    meddled: bool = True,
) -> list[Op]:
    """Operations as a sound store may record them, then often meddled with."""
    plan = _plan(rng, rng.randint(*size), forgets=forgets, limits=limits)
    ops = _execute(rng, plan)
    for _ in range(rng.choice((0, 1, 1, 2)) if meddled else 0):
        meddle(rng, ops)
    return ops


def _plan(rng: random.Random, size: int, *, forgets: bool, limits: bool) -> list[Op]:
    plan: list[Op] = []
    keyed: list[Op] = []
    spread = rng.choice((3, 8, 20))
    clock = 0
    for number in range(size):
        clock += rng.randint(0, 6)
        inv, comp = clock, clock + rng.randint(0, spread)
        kind = rng.choices(("append", "history", "forget"), (5, 5, 2 if forgets else 0))[0]
        status = rng.choices(("ok", "info", "fail"), (8, 2, 1))[0]
        if status == "info" and rng.random() < 0.6:
            comp = NEVER_NS
        op = Op(number, kind, inv, comp, status, process=number % 3)
        if kind == "append":
            op = _append(rng, op, keyed)
        elif kind == "history" and limits and rng.random() < 0.7:
            op = replace(op, limit=rng.choice((1, 2, 2, 3)))
        plan.append(op)
    return plan


def _append(rng: random.Random, op: Op, keyed: list[Op]) -> Op:
    if keyed and rng.random() < 0.3:
        first = rng.choice(keyed)
        return replace(op, messages=first.messages, key=first.key)
    batch = tuple(f"m{op.number}{part}" for part in "abc"[: rng.choice((1, 1, 1, 2, 3))])
    if rng.random() < 0.8:
        return replace(op, messages=batch)
    op = replace(op, messages=batch, key=f"k{op.number}")
    keyed.append(op)
    return op


def expiring_ops(rng: random.Random, *, ttl_ns: int, error_ns: int) -> list[Op]:
    """Operations of a sound store whose sessions expire, on a clock that is off by an error."""
    plan = _plan(rng, rng.randint(3, 12), forgets=rng.random() < 0.3, limits=rng.random() < 0.3)
    return _execute(rng, plan, life=lambda: ttl_ns + rng.randint(-error_ns, error_ns))


def _execute(rng: random.Random, plan: list[Op], life: Callable[[], int] | None = None) -> list[Op]:
    """Give every operation an instant, run them in that order, and note what reads return."""
    ends = max(op.inv for op in plan) + 30
    instants = {op.number: rng.randint(op.inv, min(op.comp, ends)) for op in plan}
    order = sorted(plan, key=lambda op: (instants[op.number], rng.random()))
    log: list[str] = []
    applied: set[tuple[str, ...]] = set()
    results: dict[int, Op] = {}
    dies = NEVER_NS
    for op in order:
        results[op.number] = op
        log = log if instants[op.number] < dies else []
        happens = op.status == "ok" or (op.status == "info" and rng.random() < 0.6)
        if op.f == "history":
            shown = log if op.limit is None else log[-op.limit :]
            results[op.number] = replace(op, messages=tuple(shown))
        elif happens and op.f == "forget":
            log = []
        elif happens and op.messages not in applied:
            applied.add(op.messages)
            log = [*log, *op.messages]
            dies = instants[op.number] + life() if life is not None else NEVER_NS
    return [results[op.number] for op in plan]


def meddle(rng: random.Random, ops: list[Op]) -> None:
    """Change what one read shows, in a way that stores do."""
    reads = [at for at, op in enumerate(ops) if op.f == "history" and op.status == "ok"]
    if not reads:
        return
    at = rng.choice(reads)
    shown = list(ops[at].messages)
    everything = [m for op in ops if op.f == "append" for m in op.messages]
    way = rng.randrange(6)
    if way == 0 and shown:
        del shown[rng.randrange(len(shown))]
    elif way == 1 and len(shown) > 1:
        one = rng.randrange(len(shown) - 1)
        shown[one], shown[one + 1] = shown[one + 1], shown[one]
    elif way == 2 and everything:
        shown.insert(rng.randint(0, len(shown)), rng.choice(everything))
    elif way == 3:
        shown = shown[: rng.randint(0, len(shown))]
    elif way == 4:
        shown = shown[rng.randint(0, len(shown)) :]
    elif way == 5:
        shown = list(ops[rng.choice(reads)].messages)
    ops[at] = replace(ops[at], messages=tuple(shown))
