"""The SQLite log with a Chroma index beside it: the promises that have to do with an index."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.suite import contract_of
from tests.suite.ours import APIS, our_target

TESTS = contract_of("recallable") | contract_of("forgotten")
# Chroma inside a process does not survive a fork of it; tests/verify/check kills one that was started.
del TESTS["test_an_index_catches_up_after_sigkill_of_the_writer"]
del TESTS["test_a_crash_inside_a_summary_neither_loses_nor_doubles"]
globals().update(TESTS)


@pytest.fixture(params=APIS)
def target(request: pytest.FixtureRequest, sqlite_engine_factory: EngineFactory) -> Target:
    engine = sqlite_engine_factory(storage="disk")
    made = our_target(request, engine, f"chroma:///{engine.data_dir}")
    # As an operator loses it: the directory is gone.
    lose = replace(made.index, lose=lambda _scope: shutil.rmtree(engine.data_dir / "chroma"))
    return replace(made, index=lose)
