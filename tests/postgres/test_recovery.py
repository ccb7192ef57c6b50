"""11 loud: what fails says done, not done or unknown, and works again by itself."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import (
    Ack,
    Durability,
    EngineUnreachable,
    HoldfastError,
    NotApplied,
    OutcomeUnknown,
    SessionState,
    Store,
    StoreClosed,
)
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore
from tests.waiting import wait_until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND wait_event_type = 'Lock'"
LOCK = "SELECT * FROM holdfast.sessions WHERE name = 's' FOR UPDATE"


class Attempt:
    """A call in a thread of its own: its result, or the error that it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: HoldfastError | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except HoldfastError as error:
            self.error = error

    def ended(self) -> HoldfastError | None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "it hangs"
        return self.error


def waits_for_a_lock(admin: psycopg.Connection) -> None:
    wait_until(lambda: admin.execute(WAITING).fetchone() != (0,))


def test_the_store_goes_on_after_sigkill_and_restart_of_the_server(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine)
    for turn in range(3):
        store.append("s", say(str(turn)))
        postgres_engine.kill()
        begin = time.monotonic()
        with pytest.raises(EngineUnreachable, match="nothing was written"):
            store.append("s", say("not written"))
        with pytest.raises(EngineUnreachable):
            store.history("s")
        assert time.monotonic() - begin < 5
        postgres_engine.start()
        assert texts(store.history("s")) == [str(number) for number in range(turn + 1)]


def test_idle_connections_that_died_cost_nobody_a_write(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    threads = [
        threading.Thread(target=store.append, args=(f"s{n}", say("opens connections")))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'")  # fmt: skip
    wait_until(lambda: admin.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'").fetchone() == (0,))  # fmt: skip
    for turn in range(10):
        store.append("s", say(str(turn)))
    assert len(store.history("s")) == 10


def test_a_write_cut_off_before_its_commit_is_unknown_and_a_retry_adds_it_once(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        attempt = Attempt(lambda: store.append("s", say("cut off"), key="k"))
        with psycopg.connect(postgres_engine.url, autocommit=True) as admin:
            waits_for_a_lock(admin)
        postgres_engine.kill()
        holder.close()
    error = attempt.ended()
    assert isinstance(error, OutcomeUnknown)
    assert "same key" in str(error)
    assert (error.operation, error.backend) == ("append", "postgres")
    postgres_engine.start()
    ack = store.append("s", say("cut off"), key="k")
    assert not ack.repeated
    assert texts(store.history("s")) == ["before", "cut off"]


def test_a_backend_that_is_ended_leaves_its_write_unknown(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    """It was not committed here, but nobody can tell that from its last word."""
    store = connect(postgres_engine)
    store.append("s", say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        attempt = Attempt(lambda: store.append("s", say("ended"), key="k"))
        waits_for_a_lock(admin)
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' AND wait_event_type = 'Lock'")  # fmt: skip
        assert isinstance(attempt.ended(), OutcomeUnknown)
    assert not store.append("s", say("ended"), key="k").repeated
    assert texts(store.history("s")) == ["before", "ended"]


def waits_for_a_standby(engine: PostgresEngine) -> int:
    """The backend that has committed and now waits for a standby that will never come."""
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    wait_until(lambda: engine.query(query) != [])
    return int(engine.query(query)[0][0] or 0)


def test_a_write_cut_off_after_its_commit_is_unknown_and_a_retry_finds_it(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("before"))
    postgres_engine.restart(settings={"synchronous_standby_names": "nobody"})
    attempt = Attempt(lambda: store.append("s", say("committed"), key="k"))
    waits_for_a_standby(postgres_engine)
    postgres_engine.kill()
    assert isinstance(attempt.ended(), OutcomeUnknown)
    postgres_engine.restart(settings={})
    ack = store.append("s", say("committed"), key="k")
    assert ack.repeated
    assert texts(store.history("s")) == ["before", "committed"]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_that_no_standby_confirmed_is_not_acknowledged(
    postgres_engine: PostgresEngine, connect: OpenStore, how: str
):
    """PostgreSQL says "done" with a mere warning then: it is on the primary, and nowhere else."""
    connect(postgres_engine).append("s", say("before"))
    postgres_engine.restart(settings={"synchronous_standby_names": "nobody"})
    store = connect(postgres_engine, require=Durability.REPLICA)
    attempt = Attempt(lambda: store.append("s", say("on one machine only")))
    backend = waits_for_a_standby(postgres_engine)
    postgres_engine.query(f"SELECT {how}({backend})")
    assert isinstance(attempt.ended(), OutcomeUnknown)


def test_a_lock_that_somebody_keeps_is_a_definite_answer_in_time(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine, query="reply_timeout_s=2")
    store.append("s", say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        for write in (
            lambda: store.append("s", say("late")),
            lambda: store.append("s", say("late"), key="k", expect=1),
            lambda: store.rewrite("s", say("late")),
            lambda: store.forget("s"),
        ):
            with pytest.raises(EngineUnreachable, match="nothing was written"):
                write()
        assert texts(store.history("s")) == ["before"], "reads do not wait for writers"
    assert texts(store.history("s")) == ["before"]
    store.append("s", say("after"))


def test_a_server_that_gives_no_answer_makes_a_write_unknown_and_a_read_fail_in_time(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine, query="reply_timeout_s=0.5&connect_timeout=2")
    store.append("s", say("before"))
    postgres_engine.pause()
    begin = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="no answer"):
        store.append("s", say("unknown"), key="k")
    with pytest.raises(EngineUnreachable):
        store.history("s")
    assert time.monotonic() - begin < 8
    postgres_engine.resume()
    store.append("s", say("unknown"), key="k")
    assert texts(store.history("s")) == ["before", "unknown"]


def test_exhausted_connections_are_a_clear_answer_within_a_bound(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine, query="pool_max=1&pool_timeout_s=0.3")
    store.append("s", say("a"))
    store.append("t", say("a"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        attempt = Attempt(lambda: store.append("s", say("b")))
        waits_for_a_lock(admin)
        begin = time.monotonic()
        with pytest.raises(
            NotApplied, match=r"all 1 connections .* busy for 0.3 s; nothing was sent"
        ):
            store.append("t", say("b"))
        assert 0.3 <= time.monotonic() - begin < 10
    assert attempt.ended() is None
    assert texts(store.history("t")) == ["a"]


def test_the_async_api_says_so_too(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    connect(postgres_engine).append("s", say("a"))

    async def scenario() -> None:
        url = f"{postgres_engine.url}?pool_max=1&pool_timeout_s=0.3"
        async with await holdfast.connect_async(url) as store:
            with psycopg.connect(postgres_engine.url) as holder:
                holder.execute(LOCK)
                first = asyncio.create_task(store.append("s", say("b")))
                await asyncio.to_thread(waits_for_a_lock, admin)
                with pytest.raises(NotApplied, match="all 1 connections"):
                    await store.append("t", say("b"))
            assert (await first).last == 2

    asyncio.run(scenario())


def test_too_many_connections_are_unreachable(
    postgres_engine_factory: EngineFactory, connect: OpenStore
):
    engine = postgres_engine_factory(
        settings={"max_connections": 8, "superuser_reserved_connections": 0, "max_wal_senders": 0}
    )
    store = connect(engine)
    others: list[psycopg.Connection[Any]] = []
    with pytest.raises(psycopg.OperationalError, match="too many clients"):
        for _ in range(20):
            others += [psycopg.connect(engine.url)]
    with pytest.raises(EngineUnreachable, match="too many clients"):
        connect(engine)
    for other in others:
        other.close()
    store.append("s", say("a"))


def test_a_statement_that_the_server_stops_is_definite(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    store.append("s", say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        attempt = Attempt(lambda: store.append("s", say("stopped")))
        waits_for_a_lock(admin)
        admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' AND wait_event_type = 'Lock'")  # fmt: skip
        error = attempt.ended()
    assert isinstance(error, EngineUnreachable)
    assert "57014" in str(error)
    assert texts(store.history("s")) == ["before"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_stricter_default_isolation_loses_nothing(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, level: str
):
    admin.execute(f"ALTER DATABASE postgres SET default_transaction_isolation = '{level}'".encode())
    stores = [connect(postgres_engine) for _ in range(3)]
    acks: list[Ack] = []
    errors: list[Exception] = []

    def write(store: Store, number: int) -> None:
        for turn in range(15):
            name = f"{number}:{turn}"
            while True:
                try:
                    acks.append(store.append("s", say(name), key=name))
                    break
                except EngineUnreachable as error:  # definite, so it may be tried again
                    errors.append(error)

    threads = [
        threading.Thread(target=write, args=(store, number)) for number, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = stores[0].history("s")
    assert [message.seq for message in history] == list(range(1, 46))
    assert len(set(texts(history))) == 45
    assert not any(ack.repeated for ack in acks), "a definite error was none"


def test_cancelling_a_write_that_waits_tells_its_outcome(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    connect(postgres_engine).append("s", say("before"))

    async def scenario() -> None:
        async with await holdfast.connect_async(postgres_engine.url) as store:
            with psycopg.connect(postgres_engine.url) as holder:
                holder.execute(LOCK)
                task = asyncio.create_task(store.append("s", say("cancelled")))
                behind = asyncio.create_task(store.append("s", say("behind it")))
                await asyncio.sleep(0.05)
                task.cancel()
                behind.cancel()
                await asyncio.sleep(0.05)
                assert not task.done(), "it must not leave before the outcome is known"
            for one in (task, behind):
                with pytest.raises(asyncio.CancelledError) as caught:
                    await one
                assert any("append: done" in note for note in caught.value.__notes__)
            assert texts(await store.history("s")) == ["before", "cancelled", "behind it"]

    asyncio.run(scenario())


def test_a_cancelled_read_leaves_the_store_whole(postgres_engine: PostgresEngine):
    async def scenario() -> None:
        async with await holdfast.connect_async(f"{postgres_engine.url}?pool_max=2") as store:
            await store.append("s", [say("x" * 1000)] * 200)
            for turn in range(20):
                task = asyncio.create_task(store.history("s"))
                for _ in range(turn):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert len(await store.history("s")) == 200

    asyncio.run(scenario())


def test_a_store_does_not_cross_a_fork(postgres_engine: PostgresEngine, connect: OpenStore):
    store = connect(postgres_engine)
    store.append("s", say("parent"))
    child = os.fork()
    if child == 0:
        try:
            store.append("s", say("child"))
        except StoreClosed:
            store.close()
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    store.append("s", say("parent again"))
    assert texts(store.history("s")) == ["parent", "parent again"]


def _append(store: Store, number: int) -> Ack:
    expect = 7 if number == 3 else None
    return store.append("s", say(str(number)), key=f"k{number % 5}", expect=expect)


def test_waiting_appends_share_a_commit_and_fail_one_by_one(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    """While one is held up, the others queue; one that conflicts does not take its group along."""
    store = connect(postgres_engine)
    store.append("s", say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        attempts = [Attempt(lambda: store.append("s", say("0")))]
        waits_for_a_lock(admin)
        attempts += [Attempt(functools.partial(_append, store, n)) for n in range(1, 9)]
        wait_until(lambda: len(store._backend._group._waiting) == 8)  # type: ignore[attr-defined]
        assert admin.execute(WAITING).fetchone() == (1,), "they wait here, not in the server"
    errors = [attempt.ended() for attempt in attempts]
    assert [type(error).__name__ for error in errors if error] == ["Conflict"]
    assert isinstance(errors[3], holdfast.Conflict)
    commits = "SELECT count(DISTINCT m.xmin::text) FROM holdfast.messages m"
    assert admin.execute(commits).fetchone() == (3,), "before, 0, and all the others together"
    history = texts(store.history("s"))
    assert history[:2] == ["before", "0"]
    assert len(history) == len(set(history))
    by_key = [{history[n] for n in range(2, len(history)) if int(history[n]) % 5 == k} for k in range(5)]  # fmt: skip
    assert [len(used) for used in by_key] == [1, 1, 1, 1, 1], "one append a key"


def test_an_interrupted_leader_leaves_those_behind_it_with_an_answer(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    """Ctrl-C hits the thread that writes for others: they learn that nobody knows, or are written."""

    class Interrupted(BaseException):
        pass

    store = connect(postgres_engine)
    store.append("s", say("before"))
    backend: Any = store._backend
    append = backend._append

    def interrupt_groups(writes: Any) -> None:
        append(writes)
        if threading.current_thread() in leaders:
            raise Interrupted

    leaders: set[threading.Thread] = set()
    raised: list[BaseException] = []

    def lead() -> None:
        leaders.add(threading.current_thread())
        try:
            store.append("s", say("leader"), key="leader")
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            raised.append(error)

    backend._append = interrupt_groups
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute(LOCK)
        thread = threading.Thread(target=lead)
        thread.start()
        waits_for_a_lock(admin)
        attempt = Attempt(lambda: store.append("s", say("behind"), key="behind"))
        wait_until(lambda: len(backend._group._waiting) == 1)
    thread.join()
    assert [type(error) for error in raised] == [Interrupted]
    assert attempt.ended() is None
    assert texts(store.history("s")) == ["before", "leader", "behind"]
    assert backend._group.is_idle()


@pytest.mark.parametrize("api", ["threads", "tasks"])
def test_sessions_that_somebody_holds_do_not_hold_up_the_others(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, api: str
):
    """More writers than statements under way: sessions share statements, but not their locks."""
    store = connect(postgres_engine)
    names = [*(f"s{n}" for n in range(5)), *(f"t{n}" for n in range(30))]
    for name in names:
        store.append(name, say("before"))
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute("SELECT * FROM holdfast.sessions WHERE substr(name, 1, 1) = 's' FOR UPDATE")
        if api == "threads":
            _the_held_one_last_in_threads(store, names, holder)
        else:
            asyncio.run(_the_held_one_last_in_tasks(postgres_engine.url, names, holder))
    shared = "SELECT max(n) FROM (SELECT count(DISTINCT session) n FROM holdfast.messages GROUP BY xmin::text) x"
    assert admin.execute(shared).fetchall() > [(1,)], "no two sessions ever shared a commit"
    for name in names:
        history = texts(store.history(name))
        assert history[0] == "before"
        assert sorted(history[1:]) == [f"{name}{n}" for n in range(5)]
        assert [message.seq for message in store.history(name)] == list(range(1, 7))


def _the_held_one_last_in_threads(
    store: Store, names: list[str], holder: psycopg.Connection
) -> None:
    def write(name: str) -> None:
        for n in range(5):
            store.append(name, say(f"{name}{n}"), key=str(n))

    threads = {name: threading.Thread(target=write, args=(name,)) for name in names}
    for thread in threads.values():
        thread.start()
    for name in names[5:]:
        threads[name].join(20)
        assert not threads[name].is_alive(), "it was held up"
    assert [len(store.history(name)) for name in names[:5]] == [1] * 5
    holder.rollback()
    for name in names[:5]:
        threads[name].join(20)


async def _the_held_one_last_in_tasks(
    url: str, names: list[str], holder: psycopg.Connection
) -> None:
    async with await holdfast.connect_async(url) as store:

        async def write(name: str) -> None:
            for n in range(5):
                await store.append(name, say(f"{name}{n}"), key=str(n))

        tasks = {name: asyncio.create_task(write(name)) for name in names}
        await asyncio.wait_for(asyncio.gather(*(tasks[name] for name in names[5:])), 20)
        assert [len(await store.history(name)) for name in names[:5]] == [1] * 5
        holder.rollback()
        await asyncio.wait_for(asyncio.gather(*tasks.values()), 20)


def test_a_read_of_what_has_expired_does_not_wait_for_a_standby(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    """It makes a note of it, which the primary has on its disk: a read asks for no more."""
    store = connect(postgres_engine, query="reply_timeout_s=8")
    store.append("s", say("before"), ttl_s=0.3)
    due_s = time.time() + 0.4
    postgres_engine.restart(settings={"synchronous_standby_names": "nobody"})
    wait_until(lambda: time.time() > due_s)
    state = "SELECT state FROM holdfast.sessions WHERE name = 's'"
    assert postgres_engine.query(state) == [("live",)]
    began_s = time.monotonic()
    assert store.stat("s").state is SessionState.EXPIRED
    assert time.monotonic() - began_s < 4
    assert postgres_engine.query(state) == [("expired",)]


def test_readers_do_not_wait_again_and_again_to_note_what_has_expired(
    postgres_engine: PostgresEngine, connect: OpenStore
):
    store = connect(postgres_engine, query="reply_timeout_s=2")
    store.append("s", say("before"), ttl_s=0.3)
    due_s = time.time() + 0.4
    wait_until(lambda: time.time() > due_s)
    with psycopg.connect(postgres_engine.url) as holder:
        holder.execute("LOCK TABLE holdfast.sessions IN SHARE MODE")
        assert store.stat("s").state is SessionState.EXPIRED
        began_s = time.monotonic()
        assert {store.stat("s").state for _ in range(3)} == {SessionState.EXPIRED}
        assert time.monotonic() - began_s < 3
