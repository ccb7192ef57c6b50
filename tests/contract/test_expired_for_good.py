"""9 expiring: what has expired stays so, in any order of clock steps, sweeps, loads and restarts.

Each engine goes by a clock that the test moves, both ways. What was shown as expired once must never
be shown again; what nobody has looked at may have been swept while the clock was ahead, or not.
"""

from __future__ import annotations

import itertools
import json
import time
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
from tests.contract.clocks import ServerClock, SqliteClock
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
WAYS = ("page", "export", "numbers", "meaning")


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


def seen_by(store: AnyStore, session: str, way: str) -> list[str]:
    """What a session shows in another way than by its history."""
    if way == "page":
        return texts(store.history(session, after=0, limit=50))
    if way == "meaning":
        return [hit.text for hit in store.recall(session, "a number", k=50)]
    if way == "numbers":
        return texts(store.messages(session, range(1, 60)))  # type: ignore[union-attr] # sync only here
    lines = [json.loads(line) for line in store.export(prefix=session)]
    return [line["record"]["msg"]["content"] for line in lines if "record" in line]


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

    @rule(session=SESSIONS, api=APIS)
    def rewrite(self, session: str, api: bool) -> None:
        """It has the time to live that the session has, from now on."""
        text, ttl_s = next(self.texts), self.seen[session].ttl_s
        self.look(session, api)
        if self.seen[session].texts and self.is_near(session):
            return
        self.stores[api].rewrite(session, say(text))
        self.seen[session] = Seen([text], ttl_s, None if ttl_s is None else self.now_s() + ttl_s)

    @rule(session=SESSIONS, api=APIS, now=st.booleans())
    def forget(self, session: str, api: bool, now: bool) -> None:
        self.stores[api].forget(session, now=now)
        self.seen[session] = Seen()

    @rule(session=SESSIONS, api=APIS, way=st.sampled_from(WAYS))
    def look_otherwise(self, session: str, api: bool, way: str) -> None:
        """No other way shows what `history` does not."""
        seen, before_s = self.seen[session], self.now_s()
        shown = seen_by(self.stores[api if way != "numbers" else 0], session, way)
        assert set(shown) <= set(seen.texts)
        if seen.over or (seen.ends_s is not None and before_s > seen.ends_s + NEAR_S):
            assert shown == [], "shown after its time"

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


@pytest.mark.parametrize("way", WAYS)
def test_no_way_is_the_first_to_show_what_has_expired(clocked: SqliteClock | ServerClock, way: str):
    """Nobody has looked at it since, and nothing was swept; then it is written to again."""
    namespace = f"{way} {time.time_ns()}"
    with holdfast.connect(clocked.url, namespace=namespace, background_indexing=False) as store:
        store.append("s", [say("1"), say("2")], ttl_s=60)
        assert sorted(seen_by(store, "s", way)) == ["1", "2"]
        clocked.move(120)
        assert seen_by(store, "s", way) == []
        store.rewrite("s", say("3"))
        assert seen_by(store, "s", way) == ["3"]
        clocked.move(120)
        assert seen_by(store, "s", way) == [], "it has the time to live of the session"
        clocked.move(-240)
        assert seen_by(store, "s", way) == []


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
