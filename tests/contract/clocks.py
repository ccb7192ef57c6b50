"""Each engine by a clock that a test moves, both ways."""

from __future__ import annotations

import atexit
import functools
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.backends.sqlite import tables
from holdfast.verify.engines import start_engine


class SqliteClock:
    """A file; its engine's clock is the one of this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.url, self.offset_s = f"sqlite:///{folder}/memory.db", 0.0
        moved = types.SimpleNamespace(time_ns=lambda: time.time_ns() + int(self.offset_s * 1e9))
        patch.setattr(tables, "time", moved)

    def move(self, by_s: float) -> None:
        self.offset_s += by_s

    def restart(self) -> None:
        """There is no server: closing and opening is all of it."""


class ServerClock:
    """A server that was started with a clock of its own."""

    def __init__(self, kind: str) -> None:
        self.engine, self.offset_s = _server(kind), 0.0
        self.url: str = self.engine.url

    def move(self, by_s: float) -> None:
        self.engine.move_clock(by_s)
        self.offset_s += by_s

    def restart(self) -> None:
        self.engine.restart()


@functools.cache
def _server(kind: str) -> Any:
    engine = start_engine(kind, clock=True)
    atexit.register(engine.close)
    return engine


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def clocked(
    request: pytest.FixtureRequest, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteClock | ServerClock]:
    if request.param == "sqlite":
        yield SqliteClock(disk_path, monkeypatch)
        return
    made = ServerClock(request.param)
    yield made
    made.move(-made.offset_s)
