"""A store of its own for each test, and both ways of calling a framework's interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Store

Use = Callable[[Any], Coroutine[Any, Any, None]]


@pytest.fixture
def url(disk_path: Path) -> str:
    return f"sqlite:///{disk_path}/memory.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with holdfast.connect(url) as opened:
        yield opened


@pytest.fixture(params=["Store", "AsyncStore"])
def awaited(request: pytest.FixtureRequest, url: str) -> Callable[[Use], None]:
    """Runs a coroutine function with a store of either kind."""

    async def main(use: Use) -> None:
        if request.param == "Store":
            with holdfast.connect(url) as store:
                await use(store)
        else:
            async with await holdfast.connect_async(url) as store:
                await use(store)

    return lambda use: asyncio.run(main(use))
