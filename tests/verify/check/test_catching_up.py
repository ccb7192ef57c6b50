"""An index that lags: as long as it catches up it is waited for, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.adapters.plain import Found
from holdfast.verify.workload import memories


class Lagging:
    """A client whose index takes in one record with each question, down to `stuck_at`."""

    def __init__(self, behind: int, stuck_at: int = 0) -> None:
        self.behind, self.stuck_at = behind, stuck_at

    def recall(self, _scope: str, query: str, *, k: int) -> Found:
        del k
        self.behind = max(self.behind - 1, self.stuck_at)
        return Found((query,) if self.behind == 0 else (), self.behind)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "CATCH_UP_S", 0.3)


def _missing(client: Any) -> str | None:
    return memories.missing(client, "u", "tea", "tea", 2)


def test_one_that_catches_up_is_waited_for():
    slowly = round(3 * 0.3 / memories.ASK_AGAIN_S)  # three times as long as one that stands still
    assert _missing(Lagging(slowly)) is None


def test_one_that_stands_still_is_not():
    assert _missing(Lagging(40, stuck_at=7)) == "'tea' is not found, 7 records behind for 0.3 s"
