"""Histories of stores that are broken in exactly one way, of 5 to 500 operations.

Several clients write, read (with and without limits) and forget. Each operation has one instant at
which a log takes it; a `Defect` changes what happens at that instant, or what a read returns.
Before a defect strikes, and in everything that it does not touch, the log is sound.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.verify.history import Event
from tests.verify.judge.oracle import NEVER_NS, Op

US = 1_000
Row = list[tuple[str, int]]
"""Messages, each with the number of its append."""


@dataclass
class World:
    """The log of one session while its operations take effect."""

    rng: random.Random
    log: Row = field(default_factory=list)
    past: list[tuple[int, Row]] = field(default_factory=list)
    """Every earlier state and since when it was one."""
    later: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    """What the defect does of itself, and when."""
    forgotten: Row = field(default_factory=list)
    skew: dict[int, int] = field(default_factory=dict)
    kind: int = 0


@dataclass(frozen=True)
class Defect:
    """One way to be broken, and the promise that it breaks."""

    name: str
    promise: str
    limits: bool | None = None
    forgets: bool | None = None
    batches: bool | None = None
    kinds: int = 1


DEFECTS = (
    Defect("torn", "atomic", batches=True, kinds=3),
    Defect("lost", "durable", kinds=3),
    Defect("stale", "fresh", kinds=2),
    Defect("reorder", "ordered", kinds=2),
    Defect("duplicate", "exactly-once", kinds=2),
    Defect("resurrected", "forgotten", forgets=True, kinds=3),
    Defect("partly forgotten", "forgotten", forgets=True, kinds=3),
    Defect("wrong window", "snapshot", limits=True, kinds=4),
    Defect("leak", "isolated", kinds=2),
)


@dataclass(frozen=True)
class Broken:
    """A history of a store with one defect, whether or not anybody could see it."""

    defect: Defect
    kind: int
    ops: list[Op]
    faults: tuple[Event, ...]


def broken(rng: random.Random, defect: Defect, size: int | None = None) -> Broken:
    """A session of that store."""
    size = size or round(5 * 100 ** rng.random())
    limits = rng.random() < 0.5 if defect.limits is None else defect.limits
    forgets = rng.random() < 0.4 if defect.forgets is None else defect.forgets
    batches = rng.random() < 0.6 if defect.batches is None else defect.batches
    world = World(rng, kind=rng.randrange(defect.kinds))
    plan = _plan(rng, size, limits=limits, forgets=forgets, batches=batches)
    faults: list[Event] = []
    if rng.random() < 0.6 or (defect.name == "lost" and world.kind == 0):
        plan, faults = _kill(rng, plan)
    ops = _run(world, defect, plan, [fault.time_ns for fault in faults])
    return Broken(defect, world.kind, ops, tuple(faults))


def _plan(rng: random.Random, size: int, *, limits: bool, forgets: bool, batches: bool) -> list[Op]:
    clients = rng.randint(1, 4)
    free = [0] * clients
    plan: list[Op] = []
    last = max(1, size - 2)
    for number in range(last):
        client = rng.randrange(clients)
        inv = max(free[client], min(free)) + rng.randint(1, 40) * US
        comp = inv + rng.randint(1, rng.choice((20, 60, 300))) * US
        free[client] = comp
        weight = 40 / size if forgets else 0
        f = rng.choices(("append", "history", "forget"), (10, 8, weight))[0]
        status = rng.choices(("ok", "info", "fail"), (96, 2, 2))[0]
        end = NEVER_NS if status == "info" else comp
        op = Op(number, f, inv, end, status, process=client)
        if f == "append":
            count = rng.choice((1, 2, 2, 3)) if batches else 1
            ids = tuple(f"m{number}.{part}" for part in range(count))
            op = replace(op, messages=ids, key=f"k{number}" if rng.random() < 0.3 else None)
        elif f == "history" and limits and rng.random() < 0.6:
            op = replace(op, limit=rng.choice((1, 2, 3, 5, 10, 50)))
        plan.append(op)
    end_ns = max(free)
    for number in (last, last + 1):  # the kit reads everything at its end
        end_ns += 500 * US
        plan.append(Op(number, "history", end_ns, end_ns + 50 * US, "ok", process=0))
    return plan


def _kill(rng: random.Random, plan: list[Op]) -> tuple[list[Op], list[Event]]:
    """One to three faults; what is in flight then has no reply and no later effect."""
    ends = [op.inv for op in plan[:-2]] or [1]
    times = sorted(rng.randint(min(ends), max(ends) + 60 * US) for _ in range(rng.randint(1, 3)))
    ops, faults = list(plan), []
    for time_ns in times:
        closed = [op for op in ops[:-2] if op.inv <= time_ns < op.comp]
        for op in closed:
            status = "info" if op.status != "fail" else "fail"
            ops[op.number] = replace(op, comp=time_ns, status=status)
        closes = tuple(op.number for op in closed if ops[op.number].status == "info")
        faults.append(Event("fault", time_ns, name="kill", closes=closes))
    return ops, faults


def _run(world: World, defect: Defect, plan: list[Op], faults: list[int]) -> list[Op]:
    rng = world.rng
    horizon = plan[-1].comp
    results = {op.number: op for op in plan}
    work: list[tuple[int, int, Callable[[], None]]] = []
    for op in plan:
        at = rng.randint(op.inv, min(op.comp, horizon))
        never = op.status == "fail" or (op.status == "info" and rng.random() < 0.4)
        if never and op.f != "history":
            continue
        work += _steps(world, defect, op, at, results)
    if defect.name == "lost" and world.kind == 0:
        work += [(time_ns, 0, lambda: _drop_newest(world, rng.randint(1, 6))) for time_ns in faults]
    work.sort(key=lambda item: item[:2])
    while work or world.later:
        world.later.sort(key=lambda item: item[0])
        if world.later and (not work or world.later[0][0] < work[0][0]):
            now, act = world.later.pop(0)
        else:
            now, _, act = work.pop(0)
        before = list(world.log)
        act()
        if world.log != before:
            world.past.append((now, before))
    return [results[op.number] for op in plan]


def _steps(
    world: World, defect: Defect, op: Op, at: int, results: dict[int, Op]
) -> list[tuple[int, int, Callable[[], None]]]:
    rng = world.rng
    if op.f == "history":

        def look() -> None:
            results[op.number] = replace(op, messages=_answer(world, defect, op, at))

        return [(at, op.number, look)]
    if op.f == "forget":
        return [(at, op.number, lambda: _forget(world, defect, at))]
    if defect.name == "torn":
        return _torn_steps(world, op, at)
    ids = op.messages

    def write() -> None:
        if defect.name == "lost" and world.kind > 0 and rng.random() < 0.1:
            if world.kind == 1:
                return  # acknowledged, and never written
            _drop_newest(world, rng.randint(1, 2))
        _place(world, defect, op, [(m, op.number) for m in ids])

    return [(at, op.number, write)]


def _torn_steps(world: World, op: Op, at: int) -> list[tuple[int, int, Callable[[], None]]]:
    """Message by message; in kind 1 an acknowledged batch now and then stays half."""
    rng = world.rng
    end = min(op.comp, at + 200 * US)
    times = sorted(rng.randint(at, end) for _ in op.messages)
    count = len(times)
    if count > 1 and (op.status == "info" or (world.kind == 1 and rng.random() < 0.3)):
        count = rng.randint(1, count)
    if world.kind == 2:  # only now and then
        times = times if rng.random() < 0.2 else [at] * len(times)

    def write(message: str) -> Callable[[], None]:
        return lambda: world.log.append((message, op.number))

    return [
        (time, op.number, write(message))
        for time, message in list(zip(times, op.messages, strict=True))[:count]
    ]


def _place(world: World, defect: Defect, op: Op, row: Row) -> None:
    rng = world.rng
    if defect.name == "reorder":
        if world.kind == 0:  # by the clocks of the clients
            skew = world.skew.setdefault(op.process, rng.randint(-3000, 3000) * US)
            world.skew.update({-1 - op.number: op.inv + skew})
            world.log = sorted([*world.log, *row], key=lambda item: world.skew.get(-1 - item[1], 0))
            return
        if rng.random() < 0.2:
            cuts = [i for i in range(len(world.log) + 1) if _between(world.log, i)]
            at = rng.choice(cuts[-6:])
            world.log[at:at] = row
            return
    world.log = [*world.log, *row]
    if defect.name == "duplicate" and rng.random() < 0.1:
        if world.kind == 0:
            world.log += row
        else:
            again = op.inv + rng.randint(50, 2000) * US
            world.later.append((again, lambda: _again(world, row)))


def _again(world: World, row: Row) -> None:
    if row[0] in world.log:  # after a forget it would be another defect
        world.log = [*world.log, *row]


def _between(log: Row, at: int) -> bool:
    return at in (0, len(log)) or log[at - 1][1] != log[at][1]


def _drop_newest(world: World, count: int) -> None:
    """The newest batches are gone: a fault took them, or somebody wrote an older copy back."""
    keep = max(0, len(world.log) - count)
    while not _between(world.log, keep):
        keep -= 1
    world.log = world.log[:keep]


def _forget(world: World, defect: Defect, at: int) -> None:
    rng = world.rng
    old = list(world.log)
    world.log = []
    if defect.name == "partly forgotten" and old:
        if world.kind == 0:
            world.log = old[rng.randint(1, len(old)) :]
        elif world.kind == 1:
            world.log = old[: rng.randint(0, len(old) - 1)]
        else:
            world.log = [item for item in old if rng.random() < 0.3]
    if defect.name == "resurrected" and old and rng.random() < 0.7:
        back = at + rng.randint(20, 800) * US
        if world.kind == 0:  # everything comes back, before what is new
            world.later.append((back, lambda: _bring_back(world, old, front=True)))
        elif world.kind == 1:  # the newest come back, behind what is new
            start = max(0, len(old) - 4)
            while start > 0 and not _between(old, start):
                start -= 1
            some = old[start:]
            world.later.append((back, lambda: _bring_back(world, some, front=False)))
        else:  # it was never taken away
            world.log = old


def _bring_back(world: World, row: Row, *, front: bool) -> None:
    there = {m for m, _ in world.log}
    row = [item for item in row if item[0] not in there]
    world.log = [*row, *world.log] if front else [*world.log, *row]


def _answer(world: World, defect: Defect, op: Op, at: int) -> tuple[str, ...]:
    rng, log = world.rng, world.log
    late = defect.name == "stale" and world.past and not _at_end(op) and rng.random() < 0.15
    if late and world.kind == 0:
        _, log = world.past[-min(len(world.past), rng.randint(1, 4))]
    elif late:
        lag = rng.randint(10, 2000) * US
        log = next((row for since, row in world.past if since > at - lag), log)
    if defect.name == "wrong window" and op.limit is not None:
        return tuple(m for m, _ in _window(world, op.limit))
    shown = log if op.limit is None else log[max(0, len(log) - op.limit) :]
    answer = tuple(m for m, _ in shown)
    if defect.name == "leak" and rng.random() < 0.2:
        answer = (*answer, f"x{rng.randrange(3)}") if world.kind == 0 else ("x0", "x1", *answer)
        if op.limit is not None:
            answer = answer[len(answer) - min(op.limit, len(answer)) :]
    return answer


def _at_end(op: Op) -> bool:
    """Whether it is one of the two reads of everything at the end."""
    return op.limit is None and op.process == 0 and op.comp - op.inv == 50 * US


def _window(world: World, limit: int) -> Row:
    log = world.log
    if world.kind == 0:
        return log[:limit]  # the oldest
    if world.kind == 1:
        end = max(0, len(log) - 1) if len(log) > limit else len(log)
        return log[max(0, end - limit) : end]  # all but the newest
    if world.kind == 2:
        return log[max(0, len(log) - limit - 1) :]  # one too many
    return log[len(log) - (limit - 1) :] if len(log) >= limit > 1 else log[-limit:]  # one too few


OTHER = [
    Op(900_000 + at, "append", 1, 2, "ok", (f"x{at}",), session="other") for at in range(3)
] + [
    Op(
        900_009,
        "history",
        10_000_000_000,
        10_000_000_001,
        "ok",
        ("x0", "x1", "x2"),
        session="other",
    )
]
"""The session from which a leak comes. Its appends ran at once."""
