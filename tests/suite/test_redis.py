"""Our own store on Redis is held to exactly the suite that users run, through the async door."""

from __future__ import annotations

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken
from tests.suite.ours import our_target, wanted


@pytest.fixture(params=["async"])
def target(request: pytest.FixtureRequest, redis_engine_factory: EngineFactory) -> Target:
    return our_target(request, redis_engine_factory(**wanted(request)))
