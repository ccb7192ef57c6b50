"""Every contract test, on every engine, through both APIs. An engine joins by one line.

`make test` leaves a part of the other versions to `make torture`, and its summary counts that part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.pytest_plugin import _left_out_key, _opened_key
from tests.contract.clocks import clocked  # noqa: F401 - a fixture
from tests.contract.harness import AnyStore, Harness, Opener, SqliteHarness
from tests.contract.harness_postgres import (
    PgvectorHarness,
    Postgres14Harness,
    Postgres16Harness,
    Postgres17Harness,
    PostgresHarness,
)
from tests.contract.harness_redis import (
    ClusterHarness,
    Redis8Harness,
    Redis62Harness,
    RedisHarness,
    ValkeyHarness,
)

ENGINES: dict[str, Callable[[Path], Harness]] = {
    "sqlite": SqliteHarness,
    "redis": RedisHarness,
    "redis-6.2": Redis62Harness,
    "redis-cluster": ClusterHarness,
    "valkey": ValkeyHarness,
    "postgres": PostgresHarness,
}
WHOLE = "HOLDFAST_TORTURE_MINUTES" in os.environ
if WHOLE:
    ENGINES |= {
        "redis-8": Redis8Harness,
        "postgres-14": Postgres14Harness,
        "postgres-16": Postgres16Harness,
        "postgres-17": Postgres17Harness,
        "postgres-18": PgvectorHarness,
    }


ONE_API = {"redis-6.2": "sync", "valkey": "async"}
"""In `make test`: another version of a server differs behind the APIs, so one of them is enough
for it, and none of the tests that kill clients."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    doubled = [item for item in items if not WHOLE and _is_doubled(item)]
    for item in doubled:
        engine = item.callspec.params["harness"]  # type: ignore[attr-defined] # it has one
        config.stash[_left_out_key][f"{engine} by {_other(engine)} (make torture)"] += 1
    if doubled:
        config.hook.pytest_deselected(items=doubled)
        items[:] = [item for item in items if not _is_doubled(item)]


def _other(engine: str) -> str:
    return {"sync": "async API and SIGKILL", "async": "sync API and SIGKILL"}[ONE_API[engine]]


def _is_doubled(item: pytest.Item) -> bool:
    chosen = getattr(item, "callspec", None)
    asked = chosen.params if chosen is not None else {}
    api = ONE_API.get(str(asked.get("harness")))
    if api is None:
        return False
    return "opener" in getattr(item, "fixturenames", ()) or asked.get("open_store", api) != api


@pytest.fixture(params=ENGINES)
def harness(request: pytest.FixtureRequest, disk_path: Path) -> Harness:
    made = ENGINES[request.param](disk_path)
    if hasattr(made, "engine"):  # a test that fails shows its log, though others use it too
        request.node.stash.setdefault(_opened_key, []).append([made.engine])
    return made


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
