"""Sound stores raise no alarm: the suite as a user takes it, on three real engines."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import *  # noqa: F403 - this is how the suite is taken
from tests.twins.sound import SOUND
from tests.twins.targets import target_of


@pytest.fixture(params=SOUND, ids=lambda kind: kind.__name__)
def target(request: pytest.FixtureRequest, engine_factory: EngineFactory) -> Target:
    kind: type[Any] = request.param
    return target_of(kind, engine_factory, request.function.holdfast_promise)
