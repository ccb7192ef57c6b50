"""A third simulator: every operation is planned with its times, then all take effect in their order.

An append takes a stamp when it begins and is visible later; a forget looks first and deletes later.
So a store is sound, or sorts by stamps, or deletes what it found; and anything else that a history
can hold happens: lost replies, faults that close, retries, expiry and retention.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.verify.history import Header, History
from tests.verify.judge.oracle import NEVER_NS, Op
from tests.verify.judge.random_histories import meddle, to_history

Batch = tuple[int, tuple[str, ...], int]
"""Its stamp, its messages, and since when it is visible."""


@dataclass(frozen=True)
class Kind:
    """What is wrong with a store, if anything, and what it says of itself."""

    promise: str = ""
    by_stamp: bool = False
    deletes_found: bool = False
    meddled: bool = False
    expires: bool = False
    retains: bool = False


KINDS = {
    "sound": Kind(),
    "sound, expires": Kind(expires=True),
    "sound, retains": Kind(retains=True),
    "sound, expires and retains": Kind(expires=True, retains=True),
    "by stamp": Kind("ordered", by_stamp=True),
    "deletes what it found": Kind("forgotten", deletes_found=True),
    "meddled": Kind("?", meddled=True),
    "meddled, expires": Kind("?", meddled=True, expires=True),
    "meddled, retains": Kind("?", meddled=True, retains=True),
    "all at once": Kind("?", True, True, True, True, True),
}


@dataclass(frozen=True)
class _Planned:
    op: Op
    stamp: int
    effect: int
    happens: bool


@dataclass
class _Store:
    kind: Kind
    rng: random.Random
    header: Header
    log: list[Batch] = field(default_factory=list)
    written: set[tuple[str, ...]] = field(default_factory=set)
    dies: int = NEVER_NS

    def append(self, one: _Planned, now: int) -> None:
        if not one.happens or one.op.messages in self.written:
            return
        self.written.add(one.op.messages)
        self.log.append((one.stamp, one.op.messages, now))
        if self.kind.by_stamp:
            self.log.sort()
        if self.header.ttl_s is not None:
            error = round(self.header.clock_error_s * 1e9)
            self.dies = now + round(self.header.ttl_s * 1e9) + self.rng.randint(-error, error)
        self.retain(now)

    def retain(self, now: int) -> None:
        age_s, last = self.header.kept_age_s, self.header.kept_last
        if age_s is not None:
            self.log[:-1] = [b for b in self.log[:-1] if b[2] + age_s * 1e9 > now]
        while last is not None and sum(len(b[1]) for b in self.log[1:]) >= last:
            del self.log[0]

    def read(self, limit: int | None) -> tuple[str, ...]:
        ids = [message for batch in self.log for message in batch[1]]
        return tuple(ids if limit is None else ids[max(0, len(ids) - limit) :])


def planned(kind: Kind, seed: str) -> History:
    """A history of that store."""
    rng = random.Random(seed)
    plan = _plan(rng)
    store = _Store(kind, rng, _header(rng, kind))
    answers: dict[int, tuple[str, ...]] = {}
    work: list[tuple[int, float, Callable[[int], None]]] = []
    for one in plan:
        work += _steps(store, one, answers)
    for now, _, act in sorted(work, key=lambda step: step[:2]):
        if now >= store.dies:
            store.log = []
        act(now)
    ops = [replace(one.op, messages=answers.get(one.op.number, one.op.messages)) for one in plan]
    for _ in range(rng.choice((1, 1, 2, 3)) if kind.meddled else 0):
        meddle(rng, ops)
    return to_history(ops, store.header)


def _header(rng: random.Random, kind: Kind) -> Header:
    header = Header("planned")
    if kind.expires:
        ttl_s, error_s = rng.choice((60e-9, 200e-9, 600e-9)), rng.choice((0.0, 5e-9))
        header = replace(header, ttl_s=ttl_s, clock_error_s=error_s)
    if kind.retains:
        last, age_s = rng.choice((None, 1, 3, 6, 12)), rng.choice((50e-9, 200e-9, 600e-9))
        aged = age_s if last is None or rng.random() < 0.3 else None
        header = replace(header, kept_last=last, kept_age_s=aged)
    return header


def _plan(rng: random.Random) -> list[_Planned]:
    plan: list[_Planned] = []
    weights = (6, rng.choice((2, 4, 8)), rng.choice((0, 0, 1, 1, 2)))
    unsure, keyed = rng.choice((0, 0, 0.05, 0.15)), rng.choice((0, 0.3, 0.8))
    sizes = rng.choice(((1,), (1, 1, 3), (1, 2, 3, 4)))
    limits = rng.choice(((None,), (None, 2, 5), (None, 1, 2, 3, 10)))
    waits = rng.choice(((3,), (3, 60), (3, 60, 300)))
    rounds = rng.randint(2, rng.choice((6, 12, 12, 30)))
    for client in range(rng.randint(1, 6)):
        clock, again = rng.randint(0, 50), None
        for _ in range(rounds):
            number = len(plan)
            stamp = clock + rng.randint(1, 10)
            effect = stamp + rng.randint(0, rng.choice(waits))
            end = effect + rng.randint(1, 20)
            f = rng.choices(("append", "history", "forget"), weights)[0]
            op = Op(number, f, clock, end, "ok", process=client)
            if again is not None:
                op = replace(op, f="append", messages=again.messages, key=again.key)
            elif f == "append":
                ids = tuple(f"{number}.{part}" for part in range(rng.choice(sizes)))
                op = replace(op, messages=ids, key=f"k{number}" if rng.random() < keyed else None)
            elif f == "history":
                op = replace(op, limit=rng.choice(limits))
            one = _Planned(op, stamp, effect, happens=True)
            if rng.random() < unsure:
                one = _without_answer(rng, one)
            plan.append(one)
            retried = op.key is not None and one.op.status != "fail"
            again = op if retried and rng.random() < 0.2 else None
            clock = end + rng.randint(1, rng.choice((10, 10, 80)))
    last = max(one.effect for one in plan)
    for client in range(rng.randint(1, 3)):
        inv = max(0, last + rng.randint(-40, 5))
        op = Op(len(plan), "history", inv, inv + 40, "ok", process=client)
        plan.append(_Planned(op, inv, inv + 30, happens=True))
    return plan


def _without_answer(rng: random.Random, one: _Planned) -> _Planned:
    """It failed; or a fault ended it, or nobody ever hears of it and it may come much later."""
    status = rng.choice(("info", "info", "fail"))
    end = NEVER_NS if status == "info" and rng.random() < 0.5 else one.op.comp
    later = rng.randint(0, 300) if end == NEVER_NS and rng.random() < 0.4 else 0
    happens = status == "info" and rng.random() < 0.6
    return _Planned(
        replace(one.op, status=status, comp=end), one.stamp, one.effect + later, happens
    )


def _steps(
    store: _Store, one: _Planned, answers: dict[int, tuple[str, ...]]
) -> list[tuple[int, float, Callable[[int], None]]]:
    rng, op = store.rng, one.op
    if op.f == "append":
        return [(one.effect, rng.random(), lambda now: store.append(one, now))]
    if op.f == "history":

        def look(now: int) -> None:
            del now
            answers[op.number] = store.read(op.limit)

        return [(rng.randint(op.inv, min(op.comp, one.effect)), rng.random(), look)]
    found: set[Batch] = set()

    def delete(now: int) -> None:
        del now
        left = [b for b in store.log if b not in found] if store.kind.deletes_found else []
        store.log = left if one.happens else store.log

    find = (one.stamp, rng.random(), lambda _: found.update(store.log))
    return [find, (one.effect, 2.0, delete)]
