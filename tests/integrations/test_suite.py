"""Our store through a framework's interface, held to exactly the suite that strangers use."""

from __future__ import annotations

import pytest

from holdfast.verify import Target
from holdfast.verify.adapters import langchain, openai_agents
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken

DOORS = {"langchain": langchain, "openai-agents": openai_agents}


@pytest.fixture(params=DOORS)
def target(request: pytest.FixtureRequest, sqlite_engine: SqliteEngine) -> Target:
    return DOORS[request.param].holdfast(sqlite_engine)
