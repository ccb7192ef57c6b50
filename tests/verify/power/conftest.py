"""A disk that can lose its power; where this machine has none, that is said aloud."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.errors import VerifyError
from holdfast.verify.faults.power.block import BlockSupply


@pytest.fixture(scope="session")
def can_cut() -> None:
    """Root and loop devices cannot be installed by any set-up: without them, skipped with why."""
    try:
        BlockSupply().close()
    except VerifyError as error:
        pytest.skip(f"NOT TESTED on this machine: {error}")


@pytest.fixture
def supply(can_cut: None) -> Iterator[BlockSupply]:
    with BlockSupply() as opened:
        yield opened
