"""What a round does: a pure function of a seed and a number, so that any round can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

SWITCH_S = 0.005
SWITCH_AT_ONCE_S = 1e-6


@dataclass(frozen=True, slots=True)
class Operation:
    """One call: append, history, rewrite, forget or close."""

    kind: str
    session: str
    texts: tuple[str, ...] = ()
    key: str | None = None
    expect: int | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """One task or thread: when it starts, what it calls, and who cancels it."""

    store: int
    pause_turns: int
    pause_us: int
    operations: tuple[Operation, ...]
    cancel_turns: int | None = None
    cancel_us: int | None = None
    call_timeout_s: float | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether one of its calls may be cut short."""
        return {self.cancel_turns, self.cancel_us, self.call_timeout_s} != {None}


@dataclass(frozen=True, slots=True)
class Plan:
    """A round. `elsewhere` is what a second process appends meanwhile."""

    number: int
    sessions: tuple[str, ...]
    workers: tuple[Worker, ...]
    elsewhere: Operation | None
    switch_s: float
    jitter: bool

    @property
    def closes(self) -> set[int]:
        """The stores that are closed while others use them."""
        return {
            worker.store
            for worker in self.workers
            for call in worker.operations
            if call.kind == "close"
        }

    def __str__(self) -> str:
        lines = [f"round {self.number}: switch {self.switch_s:g} s, jitter {self.jitter}"]
        lines += [f"  {worker}" for worker in self.workers]
        return "\n".join([*lines, f"  elsewhere: {self.elsewhere}"])


def plan(seed: int, number: int) -> Plan:
    """Two to four workers with one to three calls each, on one session or two."""
    chance = random.Random(f"{seed}/{number}")
    sessions = (f"{seed}.{number}", f"{seed}.{number}b")[: chance.choice((1, 1, 1, 2))]
    two_stores = chance.random() < 0.1
    only_appends = chance.random() < 0.5
    workers = [
        _worker(chance, name, sessions, two_stores=two_stores, only_appends=only_appends)
        for name in range(chance.randint(2, 4))
    ]
    if chance.random() < 0.02:
        at = chance.randrange(len(workers))
        calls = [*workers[at].operations, Operation("close", sessions[0])]
        workers[at] = replace(workers[at], operations=tuple(calls))
    elsewhere = None
    if chance.random() < 0.02:
        elsewhere = Operation("append", sessions[0], ("elsewhere",), _key(chance))
        if elsewhere.key is not None:
            elsewhere = replace(elsewhere, texts=(elsewhere.key,))
    return Plan(
        number,
        sessions,
        tuple(workers),
        elsewhere,
        chance.choice((SWITCH_S, SWITCH_AT_ONCE_S)),
        chance.random() < 0.35,
    )


def _worker(
    chance: random.Random,
    name: int,
    sessions: tuple[str, ...],
    *,
    two_stores: bool,
    only_appends: bool,
) -> Worker:
    calls = [
        _operation(chance, f"{name}.{turn}", chance.choice(sessions), only_appends)
        for turn in range(chance.choice((1, 1, 1, 2, 3)))
    ]
    paused, cancelled = chance.random(), chance.random()
    return Worker(
        store=chance.randrange(2) if two_stores else 0,
        pause_turns=chance.randrange(12) if paused < 0.5 else 0,
        pause_us=chance.randrange(400) if paused > 0.6 else 0,
        operations=tuple(calls),
        cancel_turns=chance.randrange(30) if cancelled < 0.08 else None,
        cancel_us=chance.randrange(1500) if 0.08 < cancelled < 0.16 else None,
        call_timeout_s=chance.randrange(1500) / 1e6 if 0.16 < cancelled < 0.22 else None,
    )


def _operation(chance: random.Random, name: str, session: str, only_appends: bool) -> Operation:
    texts = tuple(f"{name}.{at}" for at in range(chance.choice((1, 1, 1, 2, 3))))
    kind = chance.random()
    if kind < (0.7 if only_appends else 0.5):
        if (key := _key(chance)) is not None:
            return Operation("append", session, (key,), key)  # the same key says the same
        return Operation("append", session, texts)
    if kind < (0.85 if only_appends else 0.65):
        return Operation("append", session, texts, expect=chance.randrange(4))
    if only_appends or kind < 0.8:
        return Operation("history", session)
    if kind < 0.9:
        return Operation("rewrite", session, texts, expect=chance.choice((None, None, 1, 2)))
    return Operation("forget", session)


def _key(chance: random.Random) -> str | None:
    return chance.choice(("key0", "key1")) if chance.random() < 0.2 else None
