"""Directories that are really on a disk, and small waits on conditions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.backends.sqlite.durability import MEMORY_FILE_SYSTEMS
from holdfast.errors import VerifyError
from holdfast.linux import file_system_of
from holdfast.verify.power.block import BlockSupply
from tests.daemon import daemon, docker_environment  # noqa: F401 - fixtures for every test

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def can_cut() -> None:
    """Root and loop devices cannot be installed by any set-up: without them, skipped with why."""
    try:
        BlockSupply().close()
    except VerifyError as error:
        pytest.skip(f"NOT TESTED on this machine: {error}")


@pytest.fixture
def disk_path(tmp_path: Path) -> Iterator[Path]:
    """A directory of its own on a disk, also where the system's temporary one is memory."""
    if file_system_of(tmp_path) not in MEMORY_FILE_SYSTEMS:
        yield tmp_path
        return
    (ROOT / ".cache").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=ROOT / ".cache"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
