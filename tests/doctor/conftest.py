"""Looking at real engines, on a disk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.doctor import Audit, Hazard, Severity, Soundness, storage
from holdfast.pytest_plugin import EngineFactory

OnDisk = Callable[..., Any]


@pytest.fixture
def on_disk(engine_factory: EngineFactory) -> OnDisk:
    """An engine whose data are on a disk: on tmpfs nothing is sound for power loss."""
    return functools.partial(engine_factory, storage="disk")


@pytest.fixture
def nothing_is_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests keep their files where systems clean up, which is a finding of its own."""
    monkeypatch.setattr(storage, "is_temporary", lambda _: False)


def verdicts(audit: Audit) -> tuple[Soundness, Soundness]:
    """At SIGKILL, and at power loss."""
    return audit.sound[Hazard.SIGKILL], audit.sound[Hazard.POWER]


def about(audit: Audit, hazard: Hazard) -> str:
    """The words of every finding about a hazard."""
    return "\n".join(one.sentence() for one in audit.findings if hazard in one.hazards)


def worst(audit: Audit) -> Severity | None:
    return audit.findings[0].severity if audit.findings else None
