"""Directories that are really on a disk, and small waits on conditions."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.backends.sqlite.durability import MEMORY_FILE_SYSTEMS
from holdfast.errors import FaultNotProven, VerifyError
from holdfast.linux import file_system_of
from holdfast.pytest_plugin import _left_out_key
from holdfast.verify.power.block import BlockSupply
from tests.daemon import daemon, docker_environment  # noqa: F401 - fixtures for every test
from tests.hangs import (  # noqa: F401 - hooks for every test
    can_be_asked,
    pytest_runtest_makereport,
    pytest_timeout_set_timer,
)
from tests.shuffled import pytest_collection_modifyitems  # noqa: F401 - the same
from tests.torture import conftest as torture
from tests.warm import warm_command  # noqa: F401 - a fixture for every test

ROOT = Path(__file__).parents[1]
# A test that wants a smaller example asks for it; the others need not wait for one.
os.environ.setdefault("HOLDFAST_SHRINK", "0")

# A busy machine is no finding, and what is found must be found again: the same examples each time.
# A campaign looks for new ones.
settings.register_profile(
    "holdfast",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not torture.MINUTES,
    database=None,
    print_blob=True,
)
settings.load_profile("holdfast")


@pytest.hookimpl(trylast=True)  # the plugin begins its count in this hook
def pytest_configure(config: pytest.Config) -> None:
    """A whole run says how many campaigns it does not run."""
    can_be_asked(config)
    if config.args_source is config.ArgsSource.TESTPATHS and not torture.MINUTES:
        files = Path(torture.__file__).parent.glob("test_*.py")
        left_out = sum(file.read_text("utf-8").count("\ndef test_") for file in files)
        config.stash[_left_out_key]["campaigns of tests/torture (make torture)"] = left_out


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported here stays: no garbage collection has to look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def can_cut() -> None:
    """Root and loop devices cannot be installed by any set-up: without them, skipped with why."""
    cut_or_skip(BlockSupply)


def cut_or_skip(supply: Callable[[], BlockSupply]) -> None:
    """Skip where this machine allows no cut; one that drops nothing is a failure, never a skip."""
    try:
        supply().close()
    except FaultNotProven:
        raise
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
