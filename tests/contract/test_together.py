"""Writes that go together: each has an outcome of its own, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import HoldfastError
from holdfast.pytest_plugin import EngineFactory
from tests.contract.harness import Harness, SqliteHarness, say, texts
from tests.contract.harness_postgres import PostgresHarness

WRITES = 12
Broken = tuple[str, Callable[[], object]]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def breakable(request: pytest.FixtureRequest, disk_path: Path) -> Iterator[Broken]:
    """The URL of a store, and what makes every write to it fail for one and the same reason."""
    if request.param == "sqlite":
        harness = SqliteHarness(disk_path)
        yield harness.url, lambda: harness.path.rename(f"{harness.path}.away")
    elif request.param == "postgres":
        schema = PostgresHarness(disk_path)
        yield schema.url, lambda: _rename(schema)
    else:
        start: EngineFactory = request.getfixturevalue("redis_engine_factory")
        engine: Any = start(version="7", config="aof-always")
        yield engine.url, engine.kill


def _rename(harness: PostgresHarness) -> None:
    with psycopg.connect(harness.engine.url) as connection:
        connection.execute(
            f"ALTER SCHEMA {harness.schema} RENAME TO {harness.schema}_away".encode()
        )


def check_own(errors: list[Any]) -> None:
    assert len(errors) == WRITES
    assert all(isinstance(error, HoldfastError) for error in errors), errors
    assert {str(error) for error in errors} == {str(errors[0])}, "it is the same reason"
    assert len({id(error) for error in errors}) == WRITES, "one error was raised for several"
    for error in errors:
        frames = traceback.extract_tb(error.__traceback__)
        raised = [frame for frame in frames if frame.name == "attempt"]
        assert len(raised) == 1, f"{len(raised)} callers in one traceback"
        assert not isinstance(error.__context__, HoldfastError)


def test_of_tasks_that_fail_together_each_gets_an_error_of_its_own(breakable: Broken):
    async def scenario() -> list[Any]:
        url, break_it = breakable
        store = await holdfast.connect_async(url, background_indexing=False)
        await store.append("before", say("x"))
        break_it()

        async def attempt(number: int) -> Any:
            await store.append(f"s{number}", say("x"))

        tries = (attempt(number) for number in range(WRITES))
        errors = await asyncio.gather(*tries, return_exceptions=True)
        await _close(store)
        return errors

    check_own(asyncio.run(scenario()))


async def _close(store: Any) -> None:
    try:
        await store.close()
    except HoldfastError:  # its files are gone
        return


def test_of_threads_that_fail_together_each_gets_an_error_of_its_own(breakable: Broken):
    url, break_it = breakable
    store = holdfast.connect(url, background_indexing=False)
    store.append("before", say("x"))
    break_it()
    errors: list[Any] = []
    start = threading.Barrier(WRITES)

    def attempt(number: int) -> None:
        start.wait(10)
        try:
            store.append(f"s{number}", say("x"))
        except HoldfastError as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(WRITES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    check_own(errors)
    try:
        store.close()
    except HoldfastError:
        return


# A second event loop, after one that ended with writes under way.


LEFT_OPEN = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""The drivers' own, of sockets that were open when their event loop was closed."""


async def _begin_and_leave(store: Any, kept: list[Any]) -> None:
    """Many writes, as far as their first waits: one leads, others are in its group or queue."""
    for turn in range(3):
        for number in range(WRITES):
            task = asyncio.ensure_future(store.append(f"s{number % 3}", say(f"{turn}.{number}")))
            kept.append(task)
        await asyncio.sleep(0)


@LEFT_OPEN
@pytest.mark.parametrize("turns", range(4))
def test_a_store_goes_on_in_a_second_event_loop_whatever_the_first_left(
    harness: Harness, turns: int
):
    """The first is closed with tasks pending, as after a second Ctrl-C; somebody still has them."""
    first = asyncio.new_event_loop()
    kept: list[Any] = []
    store = first.run_until_complete(holdfast.connect_async(harness.url, background_indexing=False))
    first.run_until_complete(store.append("before", say("x")))
    first.run_until_complete(_begin_and_leave(store, kept))
    for _ in range(turns):
        first.run_until_complete(asyncio.sleep(0.0005))
    first.close()

    async def second() -> None:
        async with asyncio.timeout(10):
            for number in range(WRITES):
                ack = await store.append(f"s{number % 3}", say("after"))
                # By number: what the first loop had sent may take effect after it.
                shown = {one.seq: one.content for one in await store.history(ack.session)}
                assert shown[ack.last] == "after"
            await asyncio.gather(*(store.append(f"s{n}", say("x")) for n in range(WRITES)))
            assert texts(await store.history("before")) == ["x"]
            await store.close()

    asyncio.run(second())
    for task in kept:
        task._log_destroy_pending = False  # it is meant to be
        task.get_coro().close()
    kept.clear()
    gc.collect()


@LEFT_OPEN
def test_a_store_serves_two_event_loops_side_by_side(harness: Harness):
    """Each in a thread of its own; neither wakes nor waits for the other's tasks."""
    first = asyncio.new_event_loop()
    store = first.run_until_complete(holdfast.connect_async(harness.url, background_indexing=False))
    found: list[Any] = []

    async def write(name: str) -> None:
        async def one(number: int) -> None:
            for turn in range(5):
                await store.append(f"s{number % 2}", say(f"{name}.{number}.{turn}"))

        async with asyncio.timeout(20):
            await asyncio.gather(*map(one, range(6)))

    def beside() -> None:
        try:
            asyncio.run(write("b"))
        except BaseException as error:  # noqa: BLE001 - told below
            found.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    first.run_until_complete(write("a"))
    thread.join(30)
    assert not found
    histories = [first.run_until_complete(store.history(f"s{n}")) for n in range(2)]
    assert sorted(text for history in histories for text in texts(history)) == sorted(
        f"{name}.{number}.{turn}" for name in "ab" for number in range(6) for turn in range(5)
    )
    first.run_until_complete(store.close())
    first.close()
    gc.collect()
