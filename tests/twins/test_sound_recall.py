"""Sound stores with a long-term memory raise no alarm, and all that can be asked is asked."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import contract_of
from tests.twins.recalling import RECALLING, ChromaMemory
from tests.twins.targets import target_of

globals().update(contract_of("recallable") | contract_of("forgotten"))


@pytest.fixture(params=RECALLING, ids=lambda kind: kind.__name__)
def target(request: pytest.FixtureRequest, engine_factory: EngineFactory) -> Target:
    kind: type[Any] = request.param
    name = request.function.__name__
    if kind is ChromaMemory and ("sigkill" in name or "crash" in name):
        pytest.skip("Chroma inside a process does not survive a fork of it")
    return target_of(kind, engine_factory, request.function.holdfast_promise)
