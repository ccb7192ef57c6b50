"""A module that takes the suite takes all of it: nothing replaced, removed or silenced."""

from __future__ import annotations

from types import ModuleType

import pytest

from holdfast.verify.suite import TESTS


def check_module(module: ModuleType) -> None:
    """Refuse the module, naming the test, unless every test of the suite is in it as it is."""
    for name, (promise, _) in TESTS.items():
        test = getattr(module, name, None)
        if getattr(test, "holdfast_promise", None) != promise:
            how = "removed" if test is None else "overridden"
            _refuse(module, name, how)
        for mark in getattr(test, "pytestmark", ()):
            _check_mark(module, name, mark)


def _check_mark(module: ModuleType, name: str, mark: pytest.Mark) -> None:
    if mark.name in ("skip", "skipif"):
        _refuse(module, name, "skipped")
    strict = mark.kwargs.get("strict") is True and str(mark.kwargs.get("reason", "")).strip()
    if mark.name == "xfail" and not strict:
        _refuse(module, name, "marked xfail without strict=True and a reason")


def _refuse(module: ModuleType, name: str, how: str) -> None:
    promise, _ = TESTS[name]
    raise pytest.UsageError(
        f"{module.__name__}: {name} of holdfast.verify.suite was {how}. Declare "
        f"Claims({promise.replace('-', '_')}=NotClaimed('why')) where that promise may be "
        f"declined, or {name} = pytest.mark.xfail(strict=True, reason='why')({name})"
    )
