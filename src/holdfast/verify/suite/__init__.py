"""The whole contract as pytest tests, for any store.

    from holdfast.verify import Target
    from holdfast.verify.suite import *

    @pytest.fixture
    def target(sqlite_engine):
        return Target(open=lambda: MyStore(sqlite_engine.path), engine=sqlite_engine)

Every test looks at the target's claims first: a promise that is not claimed is reported as
skipped, with the reason. A test of the suite cannot be overridden; `pytest.mark.xfail` with
`strict=True` and a reason is accepted, and shown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Any, Final

import pytest

from holdfast.verify.claims import NotClaimed
from holdfast.verify.promises import PROMISES
from holdfast.verify.suite import (
    atomic,
    durable,
    exactly_once,
    expiring,
    faithful,
    forgotten,
    fresh,
    isolated,
    loud,
    ordered,
    recallable,
    snapshot,
)
from holdfast.verify.target import Target

Test = Callable[[Target], None]

_FILES: Final[dict[str, ModuleType]] = {
    "durable": durable, "ordered": ordered, "atomic": atomic, "exactly-once": exactly_once,
    "fresh": fresh, "snapshot": snapshot, "isolated": isolated, "faithful": faithful,
    "expiring": expiring, "forgotten": forgotten, "loud": loud, "recallable": recallable,
}  # fmt: skip


def _tests() -> dict[str, tuple[str, Test]]:
    return {
        name: (promise, getattr(_FILES[promise], name))
        for promise in PROMISES
        for name in vars(_FILES[promise])
        if name.startswith("test_")
    }


TESTS: Final = MappingProxyType(_tests())
"""Name -> (promise, test), in the order of the promises."""

holdfast_suite: Final = "holdfast.verify.suite"
"""A module that has this name took the whole suite; nothing of it may be missing then."""

__all__ = ["holdfast_suite"]
__all__ += TESTS  # noqa: PLE0605 - a mapping gives its names


def contract_of(promise: str) -> dict[str, Test]:
    """The tests of one promise, by name."""
    return {name: claimed(name) for name, (of, _) in TESTS.items() if of == promise}


def claimed(name: str) -> Test:
    """A new test function: left out aloud where the target does not claim the promise."""
    promise, body = TESTS[name]

    @functools.wraps(body)
    def test(target: Target) -> None:
        claim = target.claims.of(promise)
        if isinstance(claim, NotClaimed):
            pytest.skip(f"{promise} is not claimed: {claim.reason}")
        body(target)

    test.__dict__["holdfast_promise"] = promise
    return test


def __getattr__(name: str) -> Any:
    """Every module that takes the suite gets functions of its own: a mark on one stays there."""
    if name in TESTS:
        return claimed(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
