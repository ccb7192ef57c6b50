"""Stores and plain connections on a real server of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Store
from holdfast.verify.engines.postgres import PostgresEngine

OpenStore = Callable[..., Store]


@pytest.fixture
def connect() -> Iterator[OpenStore]:
    """`holdfast.connect`, closed after the test; further settings of the URL as `query`."""
    opened: list[Store] = []

    def open_store(engine: PostgresEngine, *, query: str = "", **settings: Any) -> Store:
        opened.append(holdfast.connect(f"{engine.url}?{query}", **settings))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def admin(postgres_engine: PostgresEngine) -> Iterator[psycopg.Connection]:
    """A plain connection of the superuser, each statement a transaction of its own."""
    with psycopg.connect(postgres_engine.url, autocommit=True) as connection:
        yield connection
