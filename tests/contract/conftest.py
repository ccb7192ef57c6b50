"""Every contract test, on every engine, through both APIs. An engine joins by one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.harness import AnyStore, Harness, Opener, SqliteHarness
from tests.contract.harness_postgres import PostgresHarness
from tests.contract.harness_redis import ClusterHarness, Redis62Harness, RedisHarness, ValkeyHarness

ENGINES: dict[str, Callable[[Path], Harness]] = {
    "sqlite": SqliteHarness,
    "redis": RedisHarness,
    "redis-6.2": Redis62Harness,
    "redis-cluster": ClusterHarness,
    "valkey": ValkeyHarness,
    "postgres": PostgresHarness,
}


ONE_API = {"redis-6.2": "sync", "valkey": "async"}
"""Another version of a server differs behind the APIs: one of them is enough for it, and
none of the tests that kill clients."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    doubled = [item for item in items if _is_doubled(item)]
    if doubled:
        config.hook.pytest_deselected(items=doubled)
        items[:] = [item for item in items if not _is_doubled(item)]


def _is_doubled(item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    asked = chosen.params if chosen is not None else {}
    api = ONE_API.get(str(asked.get("harness")))
    if api is None:
        return False
    return "opener" in getattr(item, "fixturenames", ()) or asked.get("open_store", api) != api


@pytest.fixture(params=ENGINES)
def harness(request: pytest.FixtureRequest, disk_path: Path) -> Harness:
    return ENGINES[request.param](disk_path)


@pytest.fixture(params=["sync", "async"])
def open_store(request: pytest.FixtureRequest, harness: Harness) -> Iterator[Opener]:
    opener = Opener(harness, request.param)
    yield opener
    opener.close()


@pytest.fixture
def opener(harness: Harness) -> Iterator[Opener]:
    """For tests whose client processes use both APIs themselves."""
    opener = Opener(harness, "sync")
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: Opener) -> AnyStore:
    return open_store()
