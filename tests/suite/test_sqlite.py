"""Our own store on SQLite is held to exactly the suite that users run, through both doors."""

from __future__ import annotations

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken
from tests.suite.ours import APIS, our_target, wanted


@pytest.fixture(params=APIS)
def target(request: pytest.FixtureRequest, sqlite_engine_factory: EngineFactory) -> Target:
    more = {"storage": "disk", **wanted(request)}
    return our_target(request, sqlite_engine_factory(**more))
