"""Any sequence of operations, through both APIs, beside a model of ten lines that cannot be wrong.

Every step picks the API that writes; the other one reads. Hypothesis shortens what fails to the
few steps that matter.
"""

from __future__ import annotations

import itertools
import os
import signal
import warnings
from dataclasses import dataclass, field
from typing import Any

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
from holdfast import Ack, Conflict, SessionState
from tests.contract.harness import AnyStore, AsyncApi, Harness, say, texts
from tests.torture.conftest import MINUTES
from tests.waiting import wait_until

EXAMPLES = 9 if not MINUTES else 200
STEPS = 25
KILLS_MAX = 2  # in one example: a fork of this process costs more than all else
SOON_S = 0.02
TTL_S = 3600.0  # a time of its own for every write that names none, so that no step inherits one

NAMES = ("a", "a:b")
SESSIONS = st.sampled_from(NAMES)
BATCHES = st.lists(st.sampled_from(["x", "", "\0", "🦑", "y" * 3000]), min_size=1, max_size=3)
KEYS = st.sampled_from([None, None, "k", "K", "a"])
EXPECTED = st.sampled_from([None, None, 0, -1, 1])  # an offset from where the session ends
APIS = st.booleans()
ENDS = st.one_of(st.none(), st.integers(-1, 4))  # so far before the end of the session
PAGES = st.tuples(st.one_of(st.none(), st.integers(0, 3)), ENDS, ENDS)


@dataclass
class Log:
    """What a session must be."""

    last: int = 0
    seen: dict[int, str] = field(default_factory=dict)
    keys: dict[str | None, tuple[int, int]] = field(default_factory=dict)
    state: SessionState = SessionState.NEVER

    @property
    def end(self) -> int:
        return max(self.seen, default=0)

    def append(self, batch: list[str], key: str | None = None) -> tuple[int, int]:
        if key not in self.keys:
            self.seen |= zip(itertools.count(self.last + 1), batch, strict=False)
            first, self.last = self.last + 1, self.last + len(batch)
            self.state = SessionState.LIVE
            if key is None:
                return first, self.last
            self.keys[key] = first, self.last
        return self.keys[key]

    def clear(self, state: SessionState) -> None:
        self.seen, self.state = {}, state

    def page(self, limit: int | None, before: int | None, after: int | None) -> dict[int, str]:
        bounded = [
            seq
            for seq in sorted(self.seen)
            if (before is None or seq < before) and (after is None or seq > after)
        ]
        if limit is not None:
            bounded = (
                bounded[:limit] if after is not None else bounded[max(0, len(bounded) - limit) :]
            )
        return {seq: self.seen[seq] for seq in bounded}


class Machine(RuleBasedStateMachine):
    """One namespace, opened through both APIs at once."""

    numbers = itertools.count(1)

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self.url = harness.url
        self.namespace = f"n{next(self.numbers)}"
        self.logs = {session: Log() for session in NAMES}
        self.killed = self.looks = 0
        self.stores = self.opened()

    def opened(self) -> list[AnyStore]:
        more: dict[str, Any] = {
            "namespace": self.namespace, "ttl_s": TTL_S, "background_indexing": False,
        }  # fmt: skip
        return [holdfast.connect(self.url, **more), AsyncApi(self.url, **more)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()

    def write(self, session: str, offset: int | None, call: Any, change: Any) -> None:
        """Do it on both sides: the same numbers, or a conflict that changed nothing."""
        log = self.logs[session]
        expect = None if offset is None else max(0, log.end + offset)
        if expect not in {None, log.end}:
            with pytest.raises(Conflict):
                call(expect=expect)
            return
        ack: Ack = call(expect=expect)
        assert (ack.first, ack.last) == change(log)

    @rule(session=SESSIONS, batch=BATCHES, key=KEYS, offset=EXPECTED, api=APIS)
    def append(
        self, session: str, batch: list[str], key: str | None, offset: int | None, api: bool
    ) -> None:
        store, log = self.stores[api], self.logs[session]
        messages = [say(text) for text in batch]
        if key in log.keys:
            assert store.append(session, messages, key=key).repeated
            return
        self.write(
            session,
            offset,
            lambda expect: store.append(session, messages, key=key, expect=expect),
            lambda log: log.append(batch, key),
        )

    @precondition(lambda self: any(log.keys for log in self.logs.values()))
    @rule(api=APIS)
    def retry(self, api: bool) -> None:
        """Known keys are answered before anything else is looked at, whatever has happened since."""
        for session, log in self.logs.items():
            for key, numbers in log.keys.items():
                again = self.stores[api].append(session, say("again"), key=key, expect=10**6)
                assert (again.repeated, (again.first, again.last)) == (True, numbers)

    @rule(session=SESSIONS, batch=st.one_of(st.just([]), BATCHES), offset=EXPECTED, api=APIS)
    def rewrite(self, session: str, batch: list[str], offset: int | None, api: bool) -> None:
        def change(log: Log) -> tuple[int, int]:
            log.clear(SessionState.LIVE)
            return log.append(batch)

        messages = [say(text) for text in batch]
        self.write(
            session,
            offset,
            lambda expect: self.stores[api].rewrite(session, messages, expect=expect),
            change,
        )

    @rule(session=SESSIONS, api=APIS)
    def forget(self, session: str, api: bool) -> None:
        log = self.logs[session]
        assert self.stores[api].forget(session).messages == len(log.seen)
        if log.state is not SessionState.NEVER:
            log.clear(SessionState.FORGOTTEN)

    @rule(session=SESSIONS, batch=BATCHES, api=APIS)
    def expire(self, session: str, batch: list[str], api: bool) -> None:
        log, store = self.logs[session], self.stores[api]
        store.append(session, [say(text) for text in batch], ttl_s=SOON_S)
        wait_until(lambda: store.stat(session).state is SessionState.EXPIRED)
        log.append(batch)
        log.clear(SessionState.EXPIRED)

    @rule(session=SESSIONS, bounds=st.lists(PAGES, min_size=5, max_size=5), api=APIS)
    def page(
        self, session: str, bounds: list[tuple[int | None, int | None, int | None]], api: bool
    ) -> None:
        log = self.logs[session]
        for limit, *ends in bounds:
            before, after = (None if one is None else max(0, log.end - one) for one in ends)
            page = self.stores[api].history(session, limit=limit, before=before, after=after)
            expected = log.page(limit, before, after)
            assert {message.seq: message.content for message in page} == expected
            assert page.last == log.end

    @rule(api=APIS)
    def move(self, api: bool) -> None:
        """Export, load elsewhere, and go on there; loading it twice changes nothing."""
        lines = list(self.stores[api].export())
        self.teardown()
        self.namespace = f"n{next(self.numbers)}"
        self.stores = self.opened()
        written = [log for log in self.logs.values() if log.state is not SessionState.NEVER]
        assert self.stores[api].load(lines).sessions == len(written)
        assert self.stores[not api].load(lines).present == len(written)
        if SessionState.EXPIRED not in {log.state for log in written}:  # it moves without its time
            assert list(self.stores[api].export()) == lines

    @rule()
    def reopen(self) -> None:
        self.teardown()
        self.stores = self.opened()

    @precondition(lambda self: self.killed < KILLS_MAX)
    @rule(session=SESSIONS, acks=st.integers(0, 2), api=APIS)
    def kill(self, session: str, acks: int, api: bool) -> None:
        """SIGKILL a writing process: every ack holds, and a retry settles what is unknown."""
        self.teardown()
        self.killed += 1
        turns = [f"{self.killed}.{turn}" for turn in range(1000)]
        known = self.acknowledged(session, turns, acks, api)
        self.stores = self.opened()
        for turn in turns[: known + 1]:
            ack = self.stores[not api].append(session, say(turn), key=turn)
            assert (ack.first, ack.last) == self.logs[session].append([turn], turn)
            assert ack.repeated or turn == turns[known], "acknowledged, and gone"

    def acknowledged(self, session: str, turns: list[str], acks: int, api: bool) -> int:
        """How many appends a process saw acknowledged before it was killed: `acks` at least."""
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the child starts no thread here
            child = os.fork()
        if not child:
            try:
                store = self.opened()[api]
                for turn in turns:
                    store.append(session, say(turn), key=turn)
                    os.write(writing, b".")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writing)
        try:
            told = b""
            while len(told) < acks and (more := os.read(reading, 1)):
                told += more
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the client ended by itself"
            return len(told) + len(os.read(reading, len(turns)))
        finally:
            os.close(reading)

    @invariant()
    def everything_is_as_it_must_be(self) -> None:
        self.looks += 1
        for at, (session, log) in enumerate(self.logs.items()):
            store = self.stores[(at + self.looks) % 2]
            history, stat = store.history(session), store.stat(session)
            assert {message.seq: message.content for message in history} == log.seen
            assert texts(history) == list(log.seen.values())
            assert (history.state, history.last) == (log.state, log.end)
            assert (stat.state, stat.last, stat.count) == (log.state, log.last, len(log.seen))
        live = [name for name, log in self.logs.items() if log.state is SessionState.LIVE]
        assert self.stores[self.looks % 2].sessions() == sorted(live)


@pytest.mark.timeout(0 if MINUTES else 400)  # what fails is made shorter first, which takes time
def test_any_sequence_of_operations_ends_as_the_model_says(harness: Harness):
    run_state_machine_as_test(
        lambda: Machine(harness),  # type: ignore[arg-type] # it is called, whatever it is
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
        ),
    )
