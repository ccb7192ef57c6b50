"""A disk that loses its power keeps what was synced, drops the rest, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven, UsageError, VerifyError
from holdfast.verify import power
from holdfast.verify.power import kernel, open_supply
from holdfast.verify.power.block import BlockSupply
from tests.conftest import cut_or_skip
from tests.waiting import wait_until

PAGE = kernel.PAGE_BYTES


def write(path: Path, content: bytes, *, sync: bool) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def devices(name: str) -> list[str]:
    """Loop devices on a disk of this name."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found += [str(file)] if name in file.read_text() else []
        except OSError:  # it was detached while we looked
            continue
    return found


def mounts(path: Path | str) -> list[str]:
    return [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(path) in line
    ]


def test_what_was_synced_survives_and_the_rest_is_gone_and_counted(supply: BlockSupply):
    write(supply.directory / "kept", b"k" * 9000, sync=True)
    write(supply.directory / "gone", b"g" * 9000, sync=False)
    before_ns = time.monotonic_ns()
    evidence = supply.cut(lambda: None)
    assert (supply.directory / "kept").read_bytes() == b"k" * 9000
    gone = supply.directory / "gone"
    assert not gone.exists() or gone.read_bytes() != b"g" * 9000
    assert evidence.facts["mechanism"] == "block"
    assert 9000 <= evidence.facts["unsynced_bytes"] <= 9000 + 16 * PAGE
    assert before_ns <= evidence.facts["at_ns"] <= time.monotonic_ns()


def test_with_everything_settled_nothing_is_dropped(supply: BlockSupply):
    write(supply.directory / "kept", b"k" * 9000, sync=False)
    supply.settle()
    assert supply.cut(lambda: None).facts["unsynced_bytes"] == 0
    assert (supply.directory / "kept").read_bytes() == b"k" * 9000


def test_a_process_that_writes_is_ended_when_nothing_reaches_the_disk_any_more(supply: BlockSupply):
    seen: list[object] = []

    def end() -> None:
        with pytest.raises(OSError, match="Input/output error"):
            write(supply.directory / "late", b"x", sync=True)
        seen.append(1)

    supply.cut(end)
    assert seen
    assert not (supply.directory / "late").exists()


def test_another_mount_namespace_does_not_bring_the_dead_disk_back(supply: BlockSupply):
    """Each container makes one; the dead file system lives on in it, and must not be met again."""
    write(supply.directory / "kept", b"k", sync=True)
    other = subprocess.Popen(["unshare", "--mount", "sleep", "600"])
    try:
        mine = Path("/proc/self/ns/mnt").readlink()
        wait_until(lambda: Path(f"/proc/{other.pid}/ns/mnt").readlink() != mine)
        for content in (b"1", b"2"):
            write(supply.directory / "gone", content, sync=False)
            supply.cut(lambda: None)
            assert (supply.directory / "kept").read_bytes() == b"k"
            write(supply.directory / "again", content, sync=True)
        assert len(devices(supply.name)) > 1, "nothing kept the dead one alive: nothing was tested"
    finally:
        other.kill()
        other.wait()
    supply.close()
    wait_until(lambda: not devices(supply.name))


@pytest.mark.usefixtures("can_cut")
def test_closing_leaves_no_mount_no_device_and_no_directory():
    supply = BlockSupply()
    directory, name = supply.directory, supply.name
    assert mounts(directory)
    assert devices(name)
    supply.close()
    supply.close()
    assert not mounts(directory)
    assert not devices(name)
    assert not directory.parent.exists()
    with pytest.raises(UsageError, match="closed"):
        _ = supply.directory


KIT = """
import os, signal, sys, time
from holdfast.verify.engines import start_engine
engine = start_engine(sys.argv[1], power="block")
supply = engine._supply
if sys.argv[2] == "in a cut":
    stop = lambda: (print(supply.directory, supply.name, engine.pid, flush=True), time.sleep(600))
    supply.cut(stop)
print(supply.directory, supply.name, engine.pid, flush=True)
time.sleep(600)
"""


def segments(owner_pid: int) -> int:
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return sum(row.split()[4] == str(owner_pid) for row in rows)


@pytest.mark.parametrize(
    ("kind", "when"), [("redis", "running"), ("redis", "in a cut"), ("postgres", "running")]
)
@pytest.mark.usefixtures("can_cut")
def test_a_killed_kit_leaves_nothing_behind(kind: str, when: str):
    with subprocess.Popen(
        [sys.executable, "-c", KIT, kind, when], stdout=subprocess.PIPE, text=True
    ) as kit:
        assert kit.stdout is not None
        directory, name, pid = kit.stdout.readline().split()
        assert mounts(directory)
        assert devices(name)
        assert kind == "redis" or segments(int(pid)) == 1
        kit.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), within_s=20)
    wait_until(lambda: not mounts(directory) and not devices(name), within_s=20)
    wait_until(lambda: not Path(directory).parent.exists(), within_s=20)
    assert segments(int(pid)) == 0


@pytest.mark.usefixtures("can_cut")
def test_a_torn_cut_lets_some_pages_through_and_each_is_old_or_new():
    mixed = 0
    for seed in range(6):
        with BlockSupply(torn=seed) as supply:
            path = supply.directory / "file"
            # Page by page, as engines do: what is written at once the kernel keeps in one piece.
            with path.open("wb", buffering=0) as file:
                for _ in range(32):
                    file.write(b"o" * PAGE)
                os.fsync(file.fileno())
                for at in range(32):
                    os.pwrite(file.fileno(), b"n" * PAGE, at * PAGE)
            evidence = supply.cut(lambda: None)
            content = path.read_bytes()
            pages = {content[at : at + PAGE] for at in range(0, len(content), PAGE)}
            assert evidence.facts["torn"]
            assert pages <= {b"o" * PAGE, b"n" * PAGE}
            mixed += len(pages) == 2
    assert mixed


@pytest.mark.usefixtures("can_cut")
def test_the_positive_control_catches_a_shutdown_that_does_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel, "shut_down", lambda _mount: None)
    with pytest.raises(FaultNotProven, match="still takes writes"):
        BlockSupply()


@pytest.mark.usefixtures("can_cut")
def test_the_positive_control_catches_a_disk_that_loses_what_was_synced(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(kernel, "sync_file_system", lambda _mount: None)
    with pytest.raises(FaultNotProven, match="synced did not survive"):
        BlockSupply()


@pytest.mark.usefixtures("can_cut")
def test_the_positive_control_catches_a_disk_that_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    real = kernel.shut_down

    def too_late(mount: int) -> None:
        kernel.sync_file_system(mount)
        real(mount)

    monkeypatch.setattr(kernel, "shut_down", too_late)
    with pytest.raises(FaultNotProven, match="not synced survived"):
        BlockSupply()


def test_without_root_it_says_so():
    code = """
import os
from holdfast.errors import VerifyError
from holdfast.verify.power.block import BlockSupply
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    BlockSupply()
except VerifyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs root" in done.stdout, done.stderr


@pytest.mark.usefixtures("can_cut")
def test_without_mkfs_or_loop_devices_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(kernel, "_LOOP_CONTROL", str(tmp_path / "nowhere"))
    with pytest.raises(VerifyError, match="needs loop devices.*nowhere"):
        BlockSupply()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VerifyError, match="apt-get install e2fsprogs"):
        BlockSupply()


@pytest.mark.usefixtures("can_cut")
def test_the_best_mechanism_is_taken_and_named():
    supply = open_supply()
    supply.close()
    assert supply.mechanism == "block"


def test_where_no_mechanism_works_every_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    nowhere = {"block": "no.such.module:A", "shim": "neither.is.this:B"}
    monkeypatch.setattr(power, "MECHANISMS", nowhere)
    with pytest.raises(VerifyError, match="cannot be cut on this machine. block: .*; shim: "):
        open_supply()
    with pytest.raises(UsageError, match="no way 'axe'.*best, block"):
        open_supply("axe")


def test_a_cut_that_drops_nothing_fails_the_tests_and_skips_none():
    def drops_nothing() -> BlockSupply:
        raise FaultNotProven("power cut: a file that was not synced survived a cut")

    def not_allowed() -> BlockSupply:
        raise VerifyError("the power cut by a block device needs root")

    with pytest.raises(FaultNotProven):
        cut_or_skip(drops_nothing)
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        cut_or_skip(not_allowed)
