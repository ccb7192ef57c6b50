"""Our store through a framework's interface, held to exactly the suite that strangers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.verify import Target
from holdfast.verify.adapters import langchain_store, openai_agents_store
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken

APIS: dict[str, Callable[[Any], Target]] = {
    "langchain": langchain_store.holdfast,
    "openai-agents": openai_agents_store.holdfast,
}


@pytest.fixture(params=APIS)
def target(request: pytest.FixtureRequest, sqlite_engine: SqliteEngine) -> Target:
    return APIS[request.param](sqlite_engine)
