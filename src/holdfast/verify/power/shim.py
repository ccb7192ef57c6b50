"""Power cuts by a preload library: needs neither root nor strace.

What is synced below the directory goes to a shadow of it, with all names of that moment
(`shims/power.c`); at the cut the shadow takes the directory's place. It follows the file
systems that commit every name with any fsync, as ext4 and xfs do.
"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.linux import is_gone, is_within, memory_map, open_files, open_flags, users_of
from holdfast.verify import shims
from holdfast.verify.blocks import Block
from holdfast.verify.instrument import Instrument, Launch
from holdfast.verify.proof import Evidence, rehearsal
from holdfast.verify.rundir import RunDir
from holdfast.verify.shims.shared import shared_file

_PATH_BYTES: Final = 4096
_CUT, _SYNCED, _UNSEEN, _REFUSE, _REFUSED = range(5)
_WORDS_BYTES: Final = 5 * 8
_PAGE_BYTES: Final = 4096
_CONTROL_TIMEOUT_S: Final = 30.0
_CONTROL: Final = """
import os, sys
for name, synced in ((".synced", True), (".not-synced", False)):
    file = os.open(f"{sys.argv[1]}/{name}", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"holdfast")
    if synced:
        os.fsync(file)
"""


class _Name(NamedTuple):
    """A name of the directory as it was on the disk."""

    mode: int
    user: int
    group: int
    key: str
    path: str

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


class ShimSupply(Block):
    """The power of a directory, for the processes started under it: it is its own instrument."""

    mechanism = "shim"

    def __init__(self) -> None:
        """Make the directory, and see that what was synced survives and the rest does not."""
        library = shims.library("power")
        self._list = ctypes.CDLL(str(library)).holdfast_list
        self._list.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
        self._list.restype = None
        self._run_dir = RunDir("disk")
        self._path = self._run_dir.path / "power"
        self._shadow = self._run_dir.path / "shadow"
        self._bytes = shared_file(self._path, _WORDS_BYTES + 2 * _PATH_BYTES, writable=True)
        self._words = memoryview(self._bytes)[:_WORDS_BYTES].cast("q")
        self.instruments: tuple[Instrument, ...] = (self,)
        try:
            self._make_directories()
            self.settle()
            self._control()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """Make the data in here. The path stays the same after a cut."""
        return self._run_dir.path / "disk"

    def wrap(self, launch: Launch) -> Launch:
        """The process on our disk."""
        return shims.preload(launch, "power", self._run_dir.path, HOLDFAST_POWER=str(self._path))

    def settle(self) -> None:
        """Whatever is in the directory now is on the disk."""
        for folder in self.directory.iterdir():
            # Another user must see the names in an engine's directory, to commit them.
            if folder.is_dir():
                folder.chmod(folder.stat().st_mode | 0o055)
        self._note("names", with_content=True)
        self._words[_UNSEEN] = 0

    def cut(self, end: Callable[[], object]) -> Evidence:
        """Lose what is not on the disk; from the first moment on no fsync comes back."""
        began = time.monotonic()
        self._see_all()
        self._words[_CUT] = 1
        at_ns = time.monotonic_ns()
        try:
            end()
            self._check_ended()
            dropped = self._bring_back()
        finally:
            self._words[_CUT] = 0
        self.settle()
        took_ms = (time.monotonic() - began) * 1000
        return Evidence(
            "power",
            f"the disk (shim) kept what {self._words[_SYNCED]} syncs had brought to it and lost "
            f"{dropped} bytes that were not there; it is back after {took_ms:.0f} ms",
            {
                "mechanism": self.mechanism,
                "unsynced_bytes": dropped,
                "took_ms": took_ms,
                "at_ns": at_ns,
                "syncs": self._words[_SYNCED],
            },
        )

    def fail_syncs(self, times: int | None = None) -> None:
        """So many calls of fsync fail with EIO, without a number every one.

        What such a call should have brought to the disk is thrown away: an fsync that works later
        says nothing about it.
        """
        self._words[_REFUSE] = -1 if times is None else times

    def heal(self) -> Evidence:
        """Syncs work again; how many were refused. `FaultNotProven` if none was."""
        self._words[_REFUSE] = 0
        refused, self._words[_REFUSED] = self._words[_REFUSED], 0
        if not refused:
            raise FaultNotProven("disk: nothing was synced, so no fsync could be refused")
        return Evidence(
            "disk",
            f"{refused} fsyncs failed with EIO, and what they should have synced was lost",
            {"mechanism": self.mechanism, "refused": refused},
        )

    def close(self) -> None:
        """End what still runs in it and leave nothing behind."""
        self._run_dir.clear()

    def _make_directories(self) -> None:
        # Engines that do not run as root work in the one and write to the other.
        for path, mode in ((self.directory, 0o755), (self._shadow, 0o777)):
            path.mkdir()
            path.chmod(mode)
        lock = self._shadow / "lock"
        lock.touch()
        lock.chmod(0o666)
        for start, path in ((0, self.directory), (_PATH_BYTES, self._shadow)):
            words = os.fsencode(path.resolve()) + b"\0"
            if len(words) > _PATH_BYTES:
                raise VerifyError(f"the path {path} is too long for a power cut by shim")
            begin = _WORDS_BYTES + start
            self._bytes[begin : begin + len(words)] = words

    def _control(self) -> None:
        """The positive control, in a process of its own: one file was synced and one was not."""
        command = (sys.executable, "-I", "-S", "-c", _CONTROL, str(self.directory))
        launch = self.wrap(Launch(command, {}))
        subprocess.run(  # noqa: S603 - our own words
            launch.command, env=launch.environment, timeout=_CONTROL_TIMEOUT_S, check=True
        )
        with rehearsal():
            self.cut(lambda: None)
        synced, not_synced = self.directory / ".synced", self.directory / ".not-synced"
        if not synced.exists() or synced.read_bytes() != b"holdfast":
            raise FaultNotProven("power cut (shim): a write that was synced did not survive")
        if not_synced.exists() and not_synced.read_bytes():
            raise FaultNotProven("power cut (shim): a write that was not synced survived")
        for path in (synced, not_synced):
            path.unlink(missing_ok=True)
        self.settle()

    def _see_all(self) -> None:
        """Refuse to speak where something reaches the disk in a way that is not seen."""
        if self._words[_UNSEEN]:
            raise FaultNotProven(
                f"power cut (shim): {self._words[_UNSEEN]} times a file was synced by msync, which "
                "this mechanism does not follow, or could not be read"
            )
        for pid in users_of(self.directory):
            if pid != os.getpid():
                _check_process(pid, str(self.directory.resolve()))

    def _check_ended(self) -> None:
        """A process that is still there waits in a sync and has the lock, which we would wait for."""
        left = [pid for pid in users_of(self.directory) if pid != os.getpid()]
        if left:
            raise FaultNotProven(
                f"power cut (shim): process {left[0]} still runs on the disk whose power is cut"
            )

    def _bring_back(self) -> int:
        """Make the directory what reached the disk; how many bytes did not."""
        dropped = 0
        kept = {name.path: name for name in self._noted("names")}
        self._note("live")
        # Children before parents, so that a directory is empty when its turn comes.
        for name in reversed(list(self._noted("live"))):
            path = self.directory / name.path
            dropped += _lose(path, self._shadow / name.key) if name.is_file else 0
            if name.path not in kept or kept[name.path].key != name.key:
                path.rmdir() if name.is_dir else path.unlink()
        for name in kept.values():
            _make(self.directory / name.path, name, self._shadow / name.key)
        return dropped

    def _note(self, where: str, *, with_content: bool = False) -> None:
        """Write down the names of now; with their content, they are on the disk."""
        place = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        self._list(place, where.encode(), with_content)

    def _noted(self, where: str) -> Iterator[_Name]:
        for line in (self._shadow / where).read_bytes().split(b"\0")[:-1]:
            mode, user, group, key, path = os.fsdecode(line).split(" ", 4)
            yield _Name(int(mode, 8), int(user), int(group), key, path)


def _lose(path: Path, content: Path) -> int:
    """Make the file what was synced of it, nothing if nothing was; how many bytes were not."""
    now = path.read_bytes()
    kept = content.read_bytes() if content.exists() else b""
    if now == kept:
        return 0
    path.write_bytes(kept)
    starts = range(0, len(now), _PAGE_BYTES)
    return sum(
        len(now[at : at + _PAGE_BYTES])
        for at in starts
        if now[at : at + _PAGE_BYTES] != kept[at : at + _PAGE_BYTES]
    )


def _make(path: Path, name: _Name, content: Path) -> None:
    """What had this name on the disk and has it no more; a socket or a pipe means nothing."""
    if path.exists() or not (name.is_dir or name.is_file):
        return
    if name.is_dir:
        path.mkdir()
    else:
        path.write_bytes(content.read_bytes() if content.exists() else b"")
    if os.geteuid() == 0:
        os.chown(path, name.user, name.group)
    path.chmod(stat.S_IMODE(name.mode))


def _check_process(pid: int, directory: str) -> None:
    """Whether all that this process writes there is seen; a process that just ended is none."""
    if b"/power-" not in memory_map(pid) and not is_gone(pid):
        raise FaultNotProven(
            f"power cut (shim): process {pid} works there and ignores the preload: it is "
            "statically linked, or was not started under this supply"
        )
    for descriptor, name in open_files(pid):
        if is_within(name, directory) and open_flags(pid, descriptor) & os.O_DSYNC:
            raise FaultNotProven(
                f"power cut (shim): process {pid} has a file open with O_DSYNC, which this "
                "mechanism does not follow"
            )
