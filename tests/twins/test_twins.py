"""No test of the suite counts until a broken store has failed it, for the promise it breaks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.promises import PROMISES
from holdfast.verify.suite import TESTS, contract_of, judging
from tests.twins import broken_postgres, broken_recall, broken_redis, broken_sqlite
from tests.twins.targets import target_of

TWINS: tuple[Any, ...] = (
    *broken_sqlite.BROKEN, *broken_redis.BROKEN, *broken_postgres.BROKEN, *broken_recall.BROKEN,
)  # fmt: skip
ELSEWHERE = {
    "test_messages_survive_a_power_cut",
    "test_a_long_time_to_live_passes_on_the_clock_of_the_engine",
}
"""Proven in tests/suite/test_faults.py, on engines that can do more."""
CASES = [
    pytest.param(twin, name, id=f"{twin.promise}-{twin.__name__}-{name}")
    for twin in TWINS
    for name in twin.caught_by
]


@pytest.mark.parametrize(("twin", "name"), CASES)
def test_a_broken_store_is_caught_for_its_own_promise(
    twin: type[Any], name: str, engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(judging, "SHOWN_MAX", 1_000_000)
    test = contract_of(twin.promise)[name]
    with pytest.raises(pytest.fail.Exception) as failure:
        test(target_of(twin, engine_factory, twin.promise))
    told = str(failure.value)
    assert told.startswith(f"{twin.promise}: "), told
    accused = {line.split(":")[0] for line in told.splitlines()} & set(PROMISES)
    assert accused == {twin.promise}, told
    print(failure.value)  # the evidence, for those who run with -rP


def test_every_promise_has_two_twins_at_least():
    count = Counter(twin.promise for twin in TWINS)
    few = [promise for promise in PROMISES if count[promise] < 2]
    assert not few
    assert len(TWINS) == len(set(TWINS)) >= 24
    assert all(twin.__doc__ for twin in TWINS)


def test_every_test_of_the_suite_has_a_twin_that_fails_it():
    proven = {name for twin in TWINS for name in twin.caught_by}
    assert proven | ELSEWHERE == set(TESTS)
