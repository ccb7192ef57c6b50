"""Real engines for the tests of faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.verify.engines import Engine, start_engine


@pytest.fixture
def redis_server() -> Iterator[Engine]:
    with start_engine("redis") as engine:
        yield engine


@pytest.fixture
def postgres_server() -> Iterator[Engine]:
    with start_engine("postgres") as engine:
        yield engine
