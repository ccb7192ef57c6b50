"""A disk that fails as often as it was told to, only where it was aimed at, and counts it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven
from holdfast.verify import reaper
from holdfast.verify.faults import FaultyDisk
from holdfast.verify.instrument import Launch
from tests.waiting import wait_until

PROGRAM = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


class Writer:
    """A process on the disk; `do` evaluates one expression in it."""

    def __init__(self, disk: FaultyDisk, path: Path) -> None:
        launch = Launch((sys.executable, "-c", PROGRAM, str(path)), dict(os.environ))
        launch = launch.under([disk])
        self._process = subprocess.Popen(
            launch.command, env=launch.environment, stdin=-1, stdout=-1, text=True, bufsize=1
        )

    def do(self, words: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(words + "\n")
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FaultyDisk]:
    with FaultyDisk() as made:
        made.aim(tmp_path)
        yield made


@pytest.fixture
def writer(disk: FaultyDisk, tmp_path: Path) -> Iterator[Writer]:
    made = Writer(disk, tmp_path / "file")
    yield made
    made.end()


def test_an_fsync_fails_as_often_as_it_was_told_to_and_then_works(disk: FaultyDisk, writer: Writer):
    disk.fail_syncs(2)
    assert writer.do("os.fsync(file)") == "Input/output error"
    assert writer.do("os.fdatasync(file)") == "Input/output error"
    assert writer.do("os.fsync(file)") == "None"
    assert disk.landed().facts["fsyncs failed with EIO"] == 2
    with pytest.raises(FaultNotProven, match="no call met the fault"):
        disk.landed()


def test_reads_and_writes_fail_until_the_disk_is_healed(disk: FaultyDisk, writer: Writer):
    disk.fail_writes()
    assert writer.do("os.pwrite(file, b'x', 0)") == "No space left on device"
    assert writer.do("os.write(file, b'x')") == "No space left on device"
    disk.fail_reads()
    assert writer.do("os.pread(file, 1, 0)") == "Input/output error"
    disk.heal()
    assert writer.do("os.pwrite(file, b'x', 0)") == "1"
    assert writer.do("os.pread(file, 1, 0)") == "b'x'"
    seen = disk.landed().seen
    assert seen == "1 reads failed with EIO, 2 writes failed with ENOSPC"


def test_other_directories_are_not_met(disk: FaultyDisk, writer: Writer, tmp_path: Path):
    beside = tmp_path / "beside"
    beside.mkdir()
    disk.aim(beside)
    disk.fail_syncs()
    assert writer.do("os.fsync(file)") == "None"
    with pytest.raises(FaultNotProven):
        disk.landed()


def test_a_slow_disk_takes_its_time(disk: FaultyDisk, writer: Writer):
    disk.slow(0.2)
    begun = time.monotonic()
    assert writer.do("os.fsync(file)") == "None"
    assert time.monotonic() - begun > 0.2
    assert disk.landed().facts["calls were slow"] == 1


def test_nothing_is_left_behind_also_after_sigkill():
    program = (
        "from holdfast.verify.faults import FaultyDisk; disk = FaultyDisk(); "
        "print(disk.wrap.__self__._path, flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdout
    path = Path(process.stdout.readline().strip())
    assert path.exists()
    assert path.parent.name.startswith(reaper.DIR_PREFIX)
    process.kill()
    process.communicate()
    wait_until(lambda: not path.parent.exists())
