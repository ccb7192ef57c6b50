"""Simulated stores with one defect each, as code: clients call them, and a scheduler interleaves.

`defects.py` gives every operation one instant and then changes what happens there. Here an operation
is a generator that yields wherever another client may come in between, so that a defect is a mistake
that people make (a loop, a cache, a page, a sort) and breaks what it breaks by itself.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from holdfast.verify.history import Event, Header, History
from tests.verify.judge.oracle import NEVER_NS, Op
from tests.verify.judge.random_histories import to_history

US = 1_000
Call = Generator[None, None, list[str]]
"""One operation under way. Each yield is a moment at which others may run, or a fault strike."""


class Store:
    """A sound store: a list for each session, and the keys that it has seen."""

    promise = ""
    forgets = 0.5
    """How often (of all runs) clients of this store forget at all."""
    limits = 0.6

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: dict[str, list[str]] = {}
        self.keys: set[str] = set()
        self.now = 0

    def row(self, session: str) -> list[str]:
        return self.rows.setdefault(session, [])

    def is_new(self, key: str | None) -> bool:
        new = key is None or key not in self.keys
        self.keys |= set() if key is None else {key}
        return new

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        yield
        if self.is_new(key):
            self.row(session).extend(ids)
        yield
        return ids

    def read(self, client: int, session: str, limit: int | None) -> Call:
        del client
        yield
        answer = self.window(self.row(session), limit)
        yield
        return answer

    def window(self, row: list[str], limit: int | None) -> list[str]:
        return row[:] if limit is None else row[max(0, len(row) - limit) :]

    def forget(self, session: str) -> Call:
        yield
        self.rows[session] = []
        yield
        return []

    def crash(self) -> None:
        """The engine is killed."""


class OneByOne(Store):
    promise = "atomic"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        yield
        if self.is_new(key):
            for message in ids:
                self.row(session).append(message)
                yield
        return ids


class KeyForEachMessage(Store):
    promise = "atomic"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        for message in ids:
            yield
            if self.is_new(None if key is None else f"{key}/{message}"):
                self.row(session).append(message)
        yield
        return ids


class Buffered(Store):
    """Syncs now and then: a crash takes what was written since."""

    promise = "durable"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.disk: dict[str, list[str]] = {}
        self.left = 0

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        answer = yield from super().append(client, session, ids, key)
        self.left -= 1
        if self.left < 0:
            self.disk = {name: row[:] for name, row in self.rows.items()}
            self.left = self.rng.randrange(12)
        return answer

    def forget(self, session: str) -> Call:
        answer = yield from super().forget(session)
        self.disk[session] = []
        return answer

    def crash(self) -> None:
        self.rows = {name: row[:] for name, row in self.disk.items()}


class LostUpdate(Store):
    promise = "durable"
    forgets = 0.0  # writing back what was forgotten would be another defect

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        yield
        if self.is_new(key):
            whole = [*self.row(session), *ids]
            yield
            self.rows[session] = whole
        yield
        return ids


class Drops(Store):
    """Says done to some writes and never does them."""

    promise = "durable"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        if self.rng.random() < 0.06:
            yield
            return ids
        return (yield from super().append(client, session, ids, key))


class Capped(Store):
    """Keeps the last few, and says nothing of the others."""

    promise = "durable"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.cap = rng.choice((3, 6, 12, 30))

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        answer = yield from super().append(client, session, ids, key)
        self.rows[session] = self.row(session)[-self.cap :]
        return answer


class Cached(Store):
    """Each client keeps what it read for a while; only its own writes drop it."""

    promise = "fresh"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.cache: dict[tuple[int, str], tuple[int, list[str]]] = {}
        self.life = rng.choice((200, 1000, 4000)) * US

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        answer = yield from super().append(client, session, ids, key)
        self.cache.pop((client, session), None)
        return answer

    def read(self, client: int, session: str, limit: int | None) -> Call:
        yield
        since, row = self.cache.get((client, session), (-NEVER_NS, []))
        if self.now - since > self.life:
            row = self.row(session)[:]
            self.cache[client, session] = self.now, row
        answer = self.window(row, limit)
        yield
        return answer


class Replica(Store):
    """Some reads go to a copy that lags behind."""

    promise = "fresh"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.past: list[tuple[int, str, list[str]]] = []
        self.lag = rng.choice((100, 500, 2000)) * US

    def read(self, client: int, session: str, limit: int | None) -> Call:
        del client
        self.past.append((self.now, session, self.row(session)[:]))
        yield
        self.past.append((self.now, session, self.row(session)[:]))
        row = self.row(session)
        if self.rng.random() < 0.2:
            old = [r for at, name, r in self.past if name == session and at <= self.now - self.lag]
            row = old[-1] if old else row
        answer = self.window(row, limit)
        yield
        return answer


class WrittenBehind(Store):
    """A journal takes every write at once; the rows that are read get it a while later."""

    promise = "fresh"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.journal: dict[int, list[tuple[str, list[str]]]] = {}

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        yield
        if self.is_new(key):
            self.journal.setdefault(client, []).append((session, ids))
        yield
        if self.rng.random() < 0.5:
            self.apply(client)
        return ids

    def read(self, client: int, session: str, limit: int | None) -> Call:
        for one in [client] if client < 7 else list(self.journal):
            self.apply(one)
        return (yield from super().read(client, session, limit))

    def apply(self, client: int) -> None:
        for session, ids in self.journal.pop(client, []):
            self.row(session).extend(ids)


class SortedByClock(Store):
    promise = "ordered"

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.at: dict[str, int] = {}
        self.skew = [rng.randint(-1500, 1500) * US for _ in range(8)]

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        self.at.update(dict.fromkeys(ids, self.now + self.skew[client]))
        yield
        if self.is_new(key):
            self.row(session).extend(ids)
            self.row(session).sort(key=lambda message: self.at[message])
        yield
        return ids


class SortedByClockSeenLater(SortedByClock):
    """Takes its time from the clock when a call begins, and is visible when that commits."""

    promise = "ordered"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        self.at.update(dict.fromkeys(ids, self.now))
        for _ in range(self.rng.choice((1, 1, 3, 6))):
            yield
        if self.is_new(key):
            self.row(session).extend(ids)
            self.row(session).sort(key=lambda message: self.at[message])
        yield
        return ids


class Unsorted(Store):
    """By time in whole ticks, and by nothing within one."""

    promise = "ordered"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        del client
        yield
        if self.is_new(key):
            row, cut = self.row(session), self.now // (300 * US)
            at = next((i for i, m in enumerate(row) if self.tick.get(m) == cut), len(row))
            self.tick.update(dict.fromkeys(ids, cut))
            row[at:at] = ids
        yield
        return ids

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.tick: dict[str, int] = {}


class IgnoresKeys(Store):
    promise = "exactly-once"

    def is_new(self, key: str | None) -> bool:
        del key
        return True


class SendsTwice(Store):
    """The driver sends again what was answered late."""

    promise = "exactly-once"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        answer = yield from super().append(client, session, ids, key)
        if key is None and self.rng.random() < 0.08:
            self.row(session).extend(ids)
        return answer


class ForgetsAPage(Store):
    promise = "forgotten"
    forgets = 1.0

    def forget(self, session: str) -> Call:
        yield
        self.rows[session] = self.row(session)[self.rng.choice((2, 5, 10)) :]
        yield
        return []


class ForgetsTheCopyOnly(Store):
    """What was forgotten is written back by the next append of another client."""

    promise = "forgotten"
    forgets = 1.0

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.old: dict[str, list[str]] = {}

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        yield
        if self.old.get(session) and self.rng.random() < 0.5:
            self.rows[session] = self.old.pop(session) + self.row(session)
        return (yield from super().append(client, session, ids, key))

    def forget(self, session: str) -> Call:
        yield
        self.old[session], self.rows[session] = self.row(session), []
        yield
        return []


class ForgetsWhatItFound(Store):
    """Looks for what is there, and deletes that a while later: what came since is left."""

    promise = "forgotten"
    forgets = 1.0

    def forget(self, session: str) -> Call:
        yield
        found = set(self.row(session))
        for _ in range(self.rng.choice((1, 3, 6))):
            yield
        self.rows[session] = [m for m in self.row(session) if m not in found]
        yield
        return []


class ForgetsNothing(Store):
    """Says done, now and then without doing it."""

    promise = "forgotten"
    forgets = 1.0

    def forget(self, session: str) -> Call:
        if self.rng.random() < 0.5:
            yield
            return []
        return (yield from super().forget(session))


class ForgetsTheKeys(Store):
    """With the session it deletes the keys of its old requests: a late retry is new then."""

    promise = "forgotten"
    forgets = 1.0

    def forget(self, session: str) -> Call:
        yield
        self.rows[session] = []
        self.keys.clear()
        yield
        return []


class OldestN(Store):
    promise = "snapshot"
    limits = 1.0

    def window(self, row: list[str], limit: int | None) -> list[str]:
        return row[:limit]


class SkipsTheNewest(Store):
    promise = "snapshot"
    limits = 1.0

    def window(self, row: list[str], limit: int | None) -> list[str]:
        return row[:] if limit is None else super().window(row[:-1], limit)


class OneTooMany(Store):
    promise = "snapshot"
    limits = 1.0

    def window(self, row: list[str], limit: int | None) -> list[str]:
        return super().window(row, None if limit is None else limit + 1)


class LimitBeforeFilter(Store):
    """The newest N of everything, and of those the session's own."""

    promise = "snapshot"
    limits = 1.0

    def window(self, row: list[str], limit: int | None) -> list[str]:
        others = self.rng.choice((0, 0, 1, 2, 5))
        return super().window(row, None if limit is None else max(0, limit - others))


class ReadsAPrefix(Store):
    """A read of one session finds others as well."""

    promise = "isolated"

    def window(self, row: list[str], limit: int | None) -> list[str]:
        other = self.row("b") if row is self.rows.get("a") else []
        return super().window([*row, *other], limit)


class OneRowForAll(Store):
    """The names of two sessions fall together."""

    promise = "isolated"

    def row(self, session: str) -> list[str]:
        del session
        return super().row("a")

    def forget(self, session: str) -> Call:
        del session
        return (yield from super().forget("a"))


class WrongSession(Store):
    """A write now and then goes to the session that was open before."""

    promise = "isolated"

    def append(self, client: int, session: str, ids: list[str], key: str | None) -> Call:
        if self.rng.random() < 0.15:
            session = "b" if session == "a" else "a"
        return (yield from super().append(client, session, ids, key))


BROKEN: tuple[type[Store], ...] = (
    OneByOne, KeyForEachMessage, Buffered, LostUpdate, Drops, Capped, Cached, Replica, WrittenBehind,
    SortedByClock, SortedByClockSeenLater, Unsorted, IgnoresKeys, SendsTwice, ForgetsAPage,
    ForgetsTheCopyOnly, ForgetsWhatItFound, ForgetsNothing, ForgetsTheKeys, OldestN,
    SkipsTheNewest, OneTooMany, LimitBeforeFilter, ReadsAPrefix, OneRowForAll, WrongSession,
)  # fmt: skip


@dataclass
class _Client:
    number: int
    op: int | None = None
    call: Call | None = None
    retry: Op | None = None


@dataclass
class _Run:
    """One history in the making."""

    rng: random.Random
    store: Store
    sessions: str
    forgets: float
    limits: float
    sizes: tuple[int, ...]
    now: int = 0
    ops: list[Op] = field(default_factory=list)
    faults: list[Event] = field(default_factory=list)
    behind: list[Call] = field(default_factory=list)
    """Calls whose client no longer waits for them."""

    def tick(self) -> None:
        self.now += self.rng.randint(1, 40) * US
        self.store.now = self.now

    def begin(self, client: _Client) -> None:
        rng, number = self.rng, len(self.ops)
        session = rng.choice(self.sessions)
        f = rng.choices(("append", "history", "forget"), (10, 8, self.forgets))[0]
        op = Op(number, f, self.now, NEVER_NS, "info", process=client.number, session=session)
        if client.retry is not None:
            first, client.retry = client.retry, None
            op = replace(op, f="append", messages=first.messages, key=first.key)
            op = replace(op, session=first.session)
        elif f == "append":
            ids = tuple(f"{number}.{part}" for part in range(rng.choice(self.sizes)))
            op = replace(op, messages=ids, key=f"k{number}" if rng.random() < 0.5 else None)
        elif f == "history" and rng.random() < self.limits:
            op = replace(op, limit=rng.choice((1, 2, 3, 5, 10, 50)))
        self.ops.append(op)
        client.op, client.call = number, self.call(op, client.number)

    def call(self, op: Op, client: int) -> Call:
        if op.f == "append":
            return self.store.append(client, op.session, list(op.messages), op.key)
        if op.f == "history":
            return self.store.read(client, op.session, op.limit)
        return self.store.forget(op.session)

    def step(self, client: _Client) -> None:
        if client.call is None or client.op is None:
            return self.begin(client)
        try:
            next(client.call)
        except StopIteration as end:
            op = self.ops[client.op]
            answer = tuple(end.value) if op.f == "history" else op.messages
            self.ops[client.op] = replace(op, comp=self.now, status="ok", messages=answer)
            again = op.key is not None and self.rng.random() < 0.15
            client.retry = op if again else None
            client.op = client.call = None
        return None

    def give_up(self, client: _Client, *, killed: bool) -> None:
        """Nobody hears the answer: the client died in the call, or waited long enough."""
        if client.call is None or client.op is None:
            return
        op = self.ops[client.op]
        if killed:
            self.ops[client.op] = replace(op, comp=self.now)
        else:
            self.behind.append(client.call)
        client.retry = op if op.key is not None else None
        client.op = client.call = None

    def crash(self, clients: list[_Client]) -> None:
        for client in clients:
            self.give_up(client, killed=True)
        self.behind.clear()
        self.store.crash()
        self.faults.append(Event("fault", self.now, name="kill"))


def simulated(kind: type[Store], seed: str, size: int | None = None) -> History:
    """The history of a few clients of that store, in which faults happen or not."""
    rng = random.Random(f"{kind.__name__}/{seed}")
    size = size or round(5 * 100 ** rng.random())
    sessions = "ab" if kind.promise == "isolated" else "a"
    forgets = 30 / size if rng.random() < kind.forgets else 0.0
    sizes = (1, 2, 2, 3) if kind.promise == "atomic" or rng.random() < 0.6 else (1,)
    run = _Run(
        rng, kind(rng), sessions, forgets, kind.limits if rng.random() < kind.limits else 0.0, sizes
    )
    clients = [_Client(number) for number in range(rng.randint(1, 4))]
    harm = rng.choice((0.0, 0.004, 0.02)) if kind is not Buffered else 0.02
    while len(run.ops) < size:
        run.tick()
        client = rng.choice(clients)
        if rng.random() < harm:
            how = rng.random()
            if how < 0.3:
                run.crash(clients)
            else:
                run.give_up(client, killed=how < 0.6)
        elif run.behind and rng.random() < 0.2:
            call = rng.choice(run.behind)
            if next(call, "over") is not None:
                run.behind.remove(call)
        else:
            run.step(client)
    _finish(run, clients)
    ops = [op for op in run.ops if op.f != "history" or op.status == "ok"]
    return to_history(ops, Header("simulated"), tuple(run.faults))


def _finish(run: _Run, clients: list[_Client]) -> None:
    """Everybody ends what is under way; then each session is read, twice, with nothing else on."""
    for client in clients:
        while client.call is not None:
            run.tick()
            run.step(client)
    for session in run.sessions * 2:
        run.now += 10_000 * US
        run.tick()
        reader = _Client(7)
        run.ops.append(
            Op(len(run.ops), "history", run.now, NEVER_NS, "info", process=7, session=session)
        )
        reader.op, reader.call = len(run.ops) - 1, run.store.read(7, session, None)
        while reader.call is not None:
            run.tick()
            run.step(reader)
