"""9 expiring: what has expired stays so, in any order of clock steps, sweeps, loads and restarts.

Each engine goes by a clock that the test moves, both ways. What was shown as expired once must never
be shown again; what nobody has looked at may have been swept while the clock was ahead, or not.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import time
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import holdfast
from holdfast import SessionState
from holdfast.backends.sqlite import tables
from holdfast.verify.engines import start_engine
from tests.contract.harness import AnyStore, AsyncApi, say, texts
from tests.torture.conftest import MINUTES
from tests.waiting import wait_until

EXAMPLES = 8 if not MINUTES else 150
STEPS = 25
RESTARTS_MAX = 1
NEAR_S = 15.0
"""So near to an expiry either answer is right: the test itself takes time."""
TTLS_S = st.sampled_from([60.0, 60.0, 3600.0, None])
MOVES_S = st.sampled_from([45.0, 120.0, 4000.0, -45.0, -120.0, -4000.0])
SESSIONS = st.sampled_from(["a", "b"])
APIS = st.booleans()


class SqliteClock:
    """A file; its engine's clock is the one of this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.url, self.offset_s = f"sqlite:///{folder}/memory.db", 0.0
        moved = types.SimpleNamespace(time_ns=lambda: time.time_ns() + int(self.offset_s * 1e9))
        patch.setattr(tables, "time", moved)

    def move(self, by_s: float) -> None:
        self.offset_s += by_s

    def restart(self) -> None:
        """There is no server: closing and opening is all of it."""


class ServerClock:
    """A server that was started with a clock of its own."""

    def __init__(self, kind: str) -> None:
        self.engine, self.offset_s = _server(kind), 0.0
        self.url: str = self.engine.url

    def move(self, by_s: float) -> None:
        self.engine.move_clock(by_s)
        self.offset_s += by_s

    def restart(self) -> None:
        self.engine.restart()


@functools.cache
def _server(kind: str) -> Any:
    engine = start_engine(kind, clock=True)
    atexit.register(engine.close)
    return engine


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def clocked(
    request: pytest.FixtureRequest, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteClock | ServerClock]:
    if request.param == "sqlite":
        yield SqliteClock(disk_path, monkeypatch)
        return
    made = ServerClock(request.param)
    yield made
    made.move(-made.offset_s)


@dataclass
class Seen:
    """What a session must be: all of `texts` until `ends_s`, then nothing, for good."""

    texts: list[str] = field(default_factory=list)
    ttl_s: float | None = None
    ends_s: float | None = None
    over: bool = False
    """It was shown as expired, or written as that."""
    was_due: bool = False
    """The clock was past its end at some time: the engine may have swept it unseen."""

    def copied(self) -> Seen:
        return Seen(list(self.texts), self.ttl_s, self.ends_s, over=self.over, was_due=self.was_due)


class Machine(RuleBasedStateMachine):
    """One namespace after another, opened through both APIs."""

    numbers = itertools.count(1)

    def __init__(self, clocked: SqliteClock | ServerClock) -> None:
        super().__init__()
        self.clocked = clocked
        self.seen = {"a": Seen(), "b": Seen()}
        self.backup: tuple[list[str], dict[str, Seen]] | None = None
        self.restarts = 0
        self.texts = map(str, itertools.count(1))
        self.namespace = f"e{next(self.numbers)}"
        self.stores = self.opened()

    def opened(self) -> list[AnyStore]:
        more: dict[str, Any] = {"namespace": self.namespace, "background_indexing": False}
        return [holdfast.connect(self.clocked.url, **more), AsyncApi(self.clocked.url, **more)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    def now_s(self) -> float:
        return time.time() + self.clocked.offset_s

    def look(self, session: str, api: bool) -> None:
        """Read it, hold the answer to what may be, and go on from what was shown."""
        seen, before_s = self.seen[session], self.now_s()
        history = self.stores[api].history(session)
        shown, whole = texts(history), seen.texts
        assert shown in ([], whole), "a part of it"
        if seen.over:
            assert shown == [], "shown again after it had expired"
        if seen.ends_s is None:
            assert shown == whole
            return
        if before_s > seen.ends_s + NEAR_S:
            assert shown == [], "shown after its time"
        if self.now_s() < seen.ends_s - NEAR_S and not seen.was_due:
            assert shown == whole, "gone before its time"
        if whole and not shown:
            assert history.state is SessionState.EXPIRED
            seen.texts, seen.over = [], True

    @rule(session=SESSIONS, ttl_s=TTLS_S, api=APIS)
    def append(self, session: str, ttl_s: float | None, api: bool) -> None:
        text = next(self.texts)
        self.look(session, api)
        if self.seen[session].texts and self.is_near(session):
            return
        self.stores[api].append(session, say(text), ttl_s=ttl_s)
        ends_s = None if ttl_s is None else self.now_s() + ttl_s
        self.seen[session] = Seen([*self.seen[session].texts, text], ttl_s, ends_s)

    def is_near(self, session: str) -> bool:
        """Whether it may expire while something is done to it."""
        ends_s = self.seen[session].ends_s
        return ends_s is not None and abs(ends_s - self.now_s()) <= NEAR_S

    @rule(by_s=MOVES_S)
    def move_clock(self, by_s: float) -> None:
        self.clocked.move(by_s)
        for seen in self.seen.values():
            if seen.ends_s is not None and self.now_s() > seen.ends_s - NEAR_S:
                seen.was_due = True

    @rule(session=SESSIONS, api=APIS)
    def stat(self, session: str, api: bool) -> None:
        seen = self.seen[session]
        if self.stores[api].stat(session).state is SessionState.EXPIRED and seen.texts:
            assert seen.ends_s is not None
            assert seen.was_due or self.is_near(session), "expired before its time"
            seen.texts, seen.over = [], True

    @rule(session=SESSIONS, api=APIS)
    def read(self, session: str, api: bool) -> None:
        self.look(session, api)

    @rule(api=APIS)
    def sweep(self, api: bool) -> None:
        """The first write of a store that was just opened sweeps."""
        self.reopen()
        self.stores[api].append("busy", say("x"))

    @rule()
    def reopen(self) -> None:
        self.teardown()
        self.stores = self.opened()

    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    @rule()
    def restart(self) -> None:
        self.restarts += 1
        self.teardown()
        self.clocked.restart()
        self.stores = self.opened()

    @rule(api=APIS)
    def back_up(self, api: bool) -> None:
        if any(self.is_near(session) for session in self.seen):
            return
        for session in self.seen:
            self.look(session, api)
        lines = list(self.stores[api].export())
        self.backup = lines, {name: seen.copied() for name, seen in self.seen.items()}

    @precondition(lambda self: self.backup is not None)
    @rule(api=APIS)
    def load_again(self, api: bool) -> None:
        """What is there stays as it is."""
        assert self.backup is not None
        try:
            self.stores[api].load(self.backup[0])
        except holdfast.Conflict:
            return

    @precondition(lambda self: self.backup is not None)
    @rule(api=APIS)
    def restore(self, api: bool) -> None:
        """Load the backup into an empty store, and go on there."""
        assert self.backup is not None
        lines, kept = self.backup
        self.teardown()
        self.namespace = f"e{next(self.numbers)}"
        self.stores = self.opened()
        self.stores[api].load(lines)
        self.seen = {name: seen.copied() for name, seen in kept.items()}
        for seen in self.seen.values():
            seen.was_due = seen.ends_s is not None and self.now_s() > seen.ends_s - NEAR_S
            if seen.was_due and seen.ends_s is not None and self.now_s() > seen.ends_s + NEAR_S:
                seen.texts, seen.over = [], True  # written as expired

    @invariant()
    def nothing_is_shown_after_its_time(self) -> None:
        for name in self.stores[0].sessions():
            assert name == "busy" or not self.seen[name].over, f"{name} is listed again"


@pytest.mark.timeout(0 if MINUTES else 400)  # what fails is made shorter first, which takes time
def test_what_has_expired_is_never_shown_again(clocked: SqliteClock | ServerClock):
    run_state_machine_as_test(
        lambda: Machine(clocked),  # type: ignore[arg-type] # it is called, whatever it is
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("how", ["history", "stat", "export"])
def test_what_was_shown_as_expired_stays_so_when_the_clock_is_set_back(
    clocked: SqliteClock | ServerClock, how: str, api: str
):
    """Without a write in between: the look itself makes it so, for others and after a restart."""
    namespace = f"{how} {api} {time.time_ns()}"

    def opened() -> AnyStore:
        kind = AsyncApi if api == "async" else holdfast.connect
        return kind(clocked.url, namespace=namespace, background_indexing=False)

    with opened() as store:
        store.append("s", [say("1"), say("2")], ttl_s=60, key="k")
        clocked.move(120)
        look = {"history": store.history, "stat": store.stat, "export": lambda _: [*store.export()]}
        shown = look[how]("s")
        state = json.loads(shown[1])["state"] if isinstance(shown, list) else shown.state
        assert state == SessionState.EXPIRED
        clocked.move(-120)
        assert texts(store.history("s")) == [], "shown again after it had expired"
    with opened() as store:
        assert (store.history("s").state, store.sessions()) == (SessionState.EXPIRED, [])
        assert store.append("s", say("old"), key="k").repeated
        assert store.append("s", say("3")).first == 3
        assert texts(store.history("s")) == ["3"]


@pytest.mark.parametrize("queued", [False, True])
def test_a_reader_does_not_wait_for_those_who_write(disk_path: Path, queued: bool):
    """The note that it has expired can wait: neither another process nor a queue holds a read up."""
    path = disk_path / "memory.db"
    with holdfast.connect(f"sqlite:///{path}") as store, ThreadPoolExecutor(1) as threads:
        store.append("s", say("x"), ttl_s=0.001)
        due_s = time.time() + 0.01
        wait_until(lambda: time.time() > due_s)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        # An append has 5 s for the lock.
        waiting = [threads.submit(store.append, "busy", say("y"))] if queued else []
        began_s = time.monotonic()
        assert store.history("s").state is SessionState.EXPIRED
        assert {store.stat("s").state for _ in range(50)} == {SessionState.EXPIRED}
        assert time.monotonic() - began_s < 3, "it waited for the lock"
        other.execute("ROLLBACK")
        other.close()
        for one in waiting:
            one.result(30)
