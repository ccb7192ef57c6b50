"""A disk that can lose its power."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.verify.power.block import BlockSupply


@pytest.fixture
def supply(can_cut: None) -> Iterator[BlockSupply]:  # noqa: ARG001 - it skips where none can be
    with BlockSupply() as opened:
        yield opened
