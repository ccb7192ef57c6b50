"""Power cuts by a disk of our own: a file system whose device is in memory, shut down at once.

The file system is ext4 on a loop device on a memory file. The cut is its own shutdown without
a flush of its log: what was not on the device is gone, for the kernel too. What the device has
at that instant is copied to a new one, which is mounted in the same place, and the journal is
replayed as after a real crash. The copy matters: where another process made a mount namespace
meanwhile (every container does), the dead file system lives on in there, and to mount its
device again would give the dead one back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven, UsageError, VerifyError
from holdfast.linux import opened, users_of
from holdfast.verify import reaper
from holdfast.verify.blocks import Block
from holdfast.verify.instrument import Instrument
from holdfast.verify.power import kernel
from holdfast.verify.proof import Evidence, rehearsal
from holdfast.verify.rundir import RunDir

SIZE_BYTES: Final = 1 << 30
"""Of the disk; memory is used only for what is written."""
DISK_NAME: Final = "holdfast-power"
"""How our devices are known in /sys/block/*/loop/backing_file, with a number of their own."""
_MKFS: Final = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-J", "size=4", "-N", "16384",
                "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")  # fmt: skip
_MKFS_TIMEOUT_S: Final = 60.0
_DETACH_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.001
_TORN_MAX: Final = 4
_CONTROL_BYTES: Final = 64 * 1024


class BlockSupply(Block):
    """A directory on a disk that can lose its power. Needs root and loop devices."""

    mechanism = "block"
    instruments: tuple[Instrument, ...] = ()

    def __init__(self, *, size_bytes: int = SIZE_BYTES, torn: int | None = None) -> None:
        """Make the disk, and see that it keeps what was synced and loses what was not.

        With a seed for `torn`, each cut first lets some of what is not synced reach the disk,
        as a kernel may that was writing when the power went.
        """
        self._owner = os.getpid()
        self.name = f"{DISK_NAME}-{self._owner}-{os.urandom(4).hex()}"
        self._cuts = 0
        self._torn: int | None = None
        self._loop: kernel.LoopDevice | None = None
        self._run_dir: RunDir | None = None
        _check_machine()
        self._image = _blank_image(self.name, size_bytes)
        try:
            self._run_dir = RunDir("memory")
            self.directory.mkdir()
            self._mount()
            # Engines that do not run as root must be able to make their directory in it.
            self.directory.chmod(0o1777)
            (self.directory / "lost+found").rmdir()
            self._control()
        except OSError as error:
            self.close()
            raise VerifyError(
                f"the power cut by a block device needs loop devices and the right to mount: {error}"
            ) from error
        except BaseException:
            self.close()
            raise
        self._torn = torn

    @property
    def directory(self) -> Path:
        """Make the data in here. The path stays the same after a cut."""
        if self._run_dir is None:
            raise UsageError("the power supply is closed: it has no directory")
        return self._run_dir.path / "disk"

    def settle(self) -> None:
        """Whatever is in the directory now is on the disk."""
        with _opened(self.directory) as mount:
            kernel.sync_file_system(mount)

    def cut(self, end: Callable[[], object]) -> Evidence:
        """Lose what is not on the disk; `end` is called when nothing reaches it any more."""
        began = time.monotonic()
        self._cuts += 1
        with contextlib.ExitStack() as files:
            dirty = list(_dirty_files(self.directory, files))
            torn = [] if self._torn is None else self._tear(dirty)
            mount = files.enter_context(_opened(self.directory))
            at_ns = time.monotonic_ns()
            kernel.shut_down(mount)
            self._see_it_dead()
            end()
            dropped = sum(kernel.dirty_bytes(file) for file in dirty)
        self._replace_device()
        self._probe()
        took_ms = (time.monotonic() - began) * 1000
        return Evidence(
            "power",
            f"the disk (block) went away with {dropped} bytes that were not on it, "
            f"a write met EIO, and it is back after {took_ms:.0f} ms",
            {
                "mechanism": self.mechanism,
                "unsynced_bytes": dropped,
                "took_ms": took_ms,
                "at_ns": at_ns,
                "torn": torn,
            },
        )

    def close(self) -> None:
        """End what still runs in it and leave nothing: no mount, no device, no memory."""
        if os.getpid() != self._owner:  # a fork of the process that owns it
            return
        loop, self._loop = self._loop, None
        run_dir, self._run_dir = self._run_dir, None
        if loop is not None:
            loop.let_go()
        if run_dir is not None:
            run_dir.clear()
        if self._image >= 0:
            os.close(self._image)
            self._image = -1
        if loop is not None:  # where another namespace holds it, it goes with that one
            _await(lambda: not loop.attached)

    def _mount(self) -> None:
        """Put the image on a new device, and that one in its place."""
        self._loop = kernel.LoopDevice(self._image)
        kernel.mount_ext4(self._loop.path, self.directory)

    def _replace_device(self) -> None:
        """What reached the disk, on a new disk in the same place."""
        assert self._loop is not None  # noqa: S101 - it is mounted
        self._loop.drain()
        old, self._image = self._image, _copy(self.name, self._image)
        os.close(old)
        kernel.unmount(self.directory)
        self._loop.let_go()
        self._mount()

    def _tear(self, dirty: list[int]) -> list[str]:
        """The processes that work here stop, and some of what is not synced reaches the disk."""
        others = [pid for pid in users_of(self.directory) if pid != os.getpid()]
        reaper.signal_all(others, signal.SIGSTOP)
        chance = random.Random(f"{self._torn}/{self._cuts}")  # noqa: S311 - a plan, not a secret
        done = []
        for file in chance.sample(dirty, min(len(dirty), chance.randint(1, _TORN_MAX))):
            pages = max(os.fstat(file).st_size // kernel.PAGE_BYTES, 1)
            first = chance.randrange(pages)
            count = chance.randint(1, pages - first)
            if chance.random() < 1 / 4:
                os.fdatasync(file)
                done.append("a file whole")
            else:
                kernel.write_range(file, first * kernel.PAGE_BYTES, count * kernel.PAGE_BYTES)
                done.append(f"{count} of {pages} pages of a file")
        return done

    def _see_it_dead(self) -> None:
        try:
            (self.directory / ".holdfast-dead").touch()
        except OSError as error:
            if error.errno == errno.EIO:
                return
            raise FaultNotProven(f"power cut: a write after it met {error}, not EIO") from error
        raise FaultNotProven("power cut: the file system still takes writes after its shutdown")

    def _probe(self) -> None:
        """A dead file system that came back instead of a new one would fail here."""
        probe = self.directory / ".holdfast-probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise FaultNotProven(f"power cut: the disk did not come back ({error})") from error

    def _control(self) -> None:
        """The positive control: one file was synced and one was not."""
        content = os.urandom(_CONTROL_BYTES)
        synced, not_synced = self.directory / ".synced", self.directory / ".not-synced"
        synced.write_bytes(content)
        self.settle()
        not_synced.write_bytes(content)
        with rehearsal():
            self.cut(lambda: None)
        if not synced.exists() or synced.read_bytes() != content:
            raise FaultNotProven("power cut: a file that was synced did not survive a cut")
        if not_synced.exists() and not_synced.read_bytes() == content:
            raise FaultNotProven("power cut: a file that was not synced survived a cut")
        synced.unlink()
        not_synced.unlink(missing_ok=True)
        self.settle()


def _check_machine() -> None:
    """`VerifyError` with what is missing here."""
    if os.geteuid() != 0:
        raise VerifyError("the power cut by a block device needs root")
    if shutil.which(_MKFS[0]) is None:
        raise VerifyError(
            "the power cut by a block device needs mkfs.ext4, and it is not here; "
            "on Debian: apt-get install e2fsprogs"
        )
    if not kernel.counts_dirty_pages():
        raise VerifyError(
            "the power cut by a block device counts what it drops, which needs Linux 6.5"
        )


def _blank_image(name: str, size_bytes: int) -> int:
    """A memory file with an empty ext4 in it."""
    image = os.memfd_create(name)
    os.ftruncate(image, size_bytes)
    done = subprocess.run(  # noqa: S603 - the command is our own
        [*_MKFS, opened("self", image)],
        pass_fds=(image,),
        capture_output=True,
        text=True,
        timeout=_MKFS_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        os.close(image)
        raise VerifyError(f"mkfs.ext4 made no file system: {done.stderr.strip()}")
    return image


def _copy(name: str, image: int) -> int:
    """The same content in a new memory file; what was never written stays unwritten."""
    new = os.memfd_create(name)
    os.ftruncate(new, os.fstat(image).st_size)
    for begin, end in _extents(image):
        os.lseek(new, begin, os.SEEK_SET)
        at = begin
        while at < end:
            at += os.sendfile(new, image, at, end - at)
    return new


def _extents(file: int) -> Iterator[tuple[int, int]]:
    at = 0
    while True:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing more
            return
        at = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, at


@contextlib.contextmanager
def _opened(path: Path | str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _dirty_files(root: Path, files: contextlib.ExitStack) -> Iterator[int]:
    """Every file of which something is not on the disk, open: after the cut none can be opened."""
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as one:
                descriptor = one.enter_context(_opened(f"{folder}/{name}"))
                if kernel.dirty_bytes(descriptor):
                    files.enter_context(one.pop_all())
                    yield descriptor


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DETACH_TIMEOUT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
