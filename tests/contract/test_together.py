"""Writes that go together: each has an outcome of its own, whatever becomes of the others."""

from __future__ import annotations

import asyncio
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
from tests.contract.harness import SqliteHarness, say
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
