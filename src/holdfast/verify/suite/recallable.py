"""recallable: whatever is in the log can be found by meaning."""

from __future__ import annotations

from holdfast.verify.suite.judging import cannot
from holdfast.verify.target import Target


def test_what_was_said_can_be_found_by_meaning(target: Target) -> None:  # noqa: ARG001
    """Left out aloud: the surface of a target has no recall to ask yet."""
    cannot("the suite cannot ask a store to recall yet, so this is unknown, not kept")
