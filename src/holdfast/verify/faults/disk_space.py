"""Disk full: a small disk of our own that is filled, or a limit on a process's files.

`tmpfs`   needs root. A small file system; what is put on it meets ENOSPC when it is full.
`rlimit`  needs no root. Running processes may write no further; they meet EFBIG, which most
          engines treat as they treat ENOSPC, and in-place writes fail too.

Both have the verbs `fill`, `release` and `close`, and `mechanism` says which one it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from holdfast.errors import FaultNotProven, UsageError, VerifyError
from holdfast.linux import mounts, status, users_of
from holdfast.verify.blocks import Block
from holdfast.verify.process_tree import tree
from holdfast.verify.proof import Evidence
from holdfast.verify.undo import Undo

SMALL_DISK_BYTES: Final = 64 * 1024 * 1024
"""Room for a fresh PostgreSQL and a little more."""
_PAGE_BYTES: Final = 4096
_SOURCE: Final = "holdfast-disk"
"""How our own mounts are known in /proc; nobody else's disk is ever filled."""
_COMMAND_TIMEOUT_S: Final = 30.0


class DiskFault(Protocol):
    """A disk that can be made full and given room again."""

    mechanism: str

    def fill(self) -> Evidence:
        """No room from now on; proven by a write that failed."""

    def release(self) -> Evidence:
        """Room again; proven by a write that worked. Nothing that others wrote is touched."""

    def close(self) -> None:
        """Leave nothing behind."""


class SmallDisk(Block):
    """A small file system of our own, for an engine's `storage` or a SQLite file."""

    mechanism = "tmpfs"

    def __init__(self, *, size_bytes: int = SMALL_DISK_BYTES) -> None:
        """Make it. `VerifyError` where this user may not mount."""
        if size_bytes < _PAGE_BYTES:
            raise UsageError(f"a disk has at least {_PAGE_BYTES} bytes, not {size_bytes}")
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        self._undo = Undo(
            "/bin/sh", "-c", 'umount --lazy "$1"; exec rmdir "$1"', "undo", str(self.path)
        )
        self._filler = self.path / ".holdfast-filler"
        # Engines that do not run as root must be able to make their directory in it.
        options = f"size={size_bytes},mode=1777"
        done = _run("mount", "-t", "tmpfs", "-o", options, _SOURCE, str(self.path))
        if done.returncode != 0:
            self.close()
            raise VerifyError(
                f"no small disk can be mounted here ({done.stderr.strip()}): "
                "run as root, or use FileSizeLimit, which needs no root"
            )

    def fill(self, *, leave_bytes: int = 0) -> Evidence:
        """Leave at most `leave_bytes` free; proven by ENOSPC from a write of one page more."""
        step = _free_bytes(self.path)
        while step > 0 and (left := _free_bytes(self.path) - leave_bytes) > 0:
            step = min(step, left)
            if not self._allocate(step):  # somebody writes at the same time: smaller bites
                step //= 2
        seen = self._write(_free_bytes(self.path) + _PAGE_BYTES)
        if seen != errno.ENOSPC:
            raise FaultNotProven(f"disk full: the write ended with {_name(seen)}, not ENOSPC")
        free = _free_bytes(self.path)
        return Evidence(
            fault="disk",
            seen=f"a write of {free + _PAGE_BYTES} bytes failed with ENOSPC, {free} are free",
            facts={"mechanism": self.mechanism, "errno": seen, "free_bytes": free},
        )

    def release(self) -> Evidence:
        """Room again; proven by a write that worked."""
        self._filler.unlink(missing_ok=True)
        seen = self._write(_PAGE_BYTES)
        if seen != 0:
            raise FaultNotProven(f"disk released, and yet a write fails with {_name(seen)}")
        free = _free_bytes(self.path)
        return Evidence(
            fault="disk-release",
            seen=f"a write worked, {free} bytes are free",
            facts={"mechanism": self.mechanism, "free_bytes": free},
        )

    def close(self) -> None:
        """Unmount and remove it with all that is on it. Closing twice does nothing."""
        if self.path.exists():
            if os.path.ismount(self.path):
                # Lazily: a process that still has a file open must not keep the mount alive.
                _run("umount", "--lazy", str(self.path))
            with contextlib.suppress(OSError):
                self.path.rmdir()
        self._undo.cancel()

    def _allocate(self, wanted_bytes: int) -> bool:
        """Grow the filler by so much; False where somebody else took some of it meanwhile."""
        with self._filler.open("ab") as filler:
            try:
                if wanted_bytes > 0:
                    os.posix_fallocate(filler.fileno(), filler.tell(), wanted_bytes)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return False
        return True

    def _write(self, count: int) -> int:
        """Write so many bytes into a new file and remove it; the errno, or 0."""
        probe = self.path / ".holdfast-probe"
        try:
            probe.write_bytes(bytes(count))
        except OSError as error:
            return error.errno or -1
        else:
            return 0
        finally:
            probe.unlink(missing_ok=True)


class FileSizeLimit(Block):
    """Running processes that may write no file any further. Needs no root."""

    mechanism = "rlimit"

    def __init__(self, pids: Iterable[int]) -> None:
        """Aim at these processes and all that they started; at least one must be alive."""
        self._roots = list(pids)
        self._before: dict[int, tuple[int, int]] = {}
        if not self._alive():
            raise FaultNotProven(f"disk full: no process of {self._roots} is alive")

    def fill(self) -> Evidence:
        """Every write to a file fails with EFBIG; proven by the limit that /proc shows."""
        pids = self._alive()
        mortal = [pid for pid in pids if not _survives_limit(pid)]
        if mortal:
            raise FaultNotProven(
                f"disk full: processes {mortal} would die of SIGXFSZ instead of seeing an error; "
                "start them with `env --ignore-signal=XFSZ`"
            )
        limits = {pid: limit for pid in pids if (limit := self._limit(pid)) is not None}
        seen = _errno_under_limit()
        if not limits or any(limits.values()) or seen != errno.EFBIG:
            self.release()
            raise FaultNotProven(f"disk full: limits are {limits}, a write gave {_name(seen)}")
        return Evidence(
            fault="disk",
            seen=f"{len(pids)} processes may write 0 bytes; under that limit a write gave EFBIG",
            facts={"mechanism": self.mechanism, "errno": seen, "limits": limits},
        )

    def release(self) -> Evidence:
        """The limits of before; proven by what the kernel says of each process."""
        restored: dict[int, int] = {}
        for pid in self._alive():
            # A process that was started under the limit inherited it, and nothing else.
            limit = self._before.get(pid) or next(iter(self._before.values()), None)
            with contextlib.suppress(ProcessLookupError):
                if limit is not None:
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
                    restored[pid] = resource.prlimit(pid, resource.RLIMIT_FSIZE)[0]
        if 0 in restored.values():
            raise FaultNotProven(f"disk released, and yet the limits are {restored}")
        self._before.clear()
        return Evidence(
            fault="disk-release",
            seen=f"{len(restored)} processes may write again",
            facts={"mechanism": self.mechanism, "limits": restored},
        )

    def close(self) -> None:
        """The limits of before, where a process is still there."""
        if self._before:
            self.release()

    def _limit(self, pid: int) -> int | None:
        """Allow it no byte more; the limit that the kernel then tells, None if it is gone."""
        try:
            _, hard = before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            self._before.setdefault(pid, before)
            # Only the soft limit: the hard one could not be raised again without root.
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
            return resource.prlimit(pid, resource.RLIMIT_FSIZE)[0]
        except ProcessLookupError:
            return None
        except PermissionError as error:
            self.close()
            raise FaultNotProven(
                f"disk full: this user may not limit process {pid} of another user; "
                "put its data on a SmallDisk"
            ) from error

    def _alive(self) -> list[int]:
        return list(dict.fromkeys(pid for root in self._roots for pid in tree(root)))


def may_limit(pid: int) -> bool:
    """Whether this user may limit that process: its own, or any with the right capability."""
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE)
    except PermissionError:
        return False
    return True


def disk_of(directory: Path) -> DiskFault:
    """The way to make this directory's disk full that is available: see `mechanism`.

    On a `SmallDisk` of ours that one is filled; anywhere else the processes that use the
    directory are limited, and nobody else on that file system notices.
    """
    mount = _mount_of(directory.resolve())
    if mount is not None:
        return _Adopted(mount)
    return FileSizeLimit(users_of(directory))


class _Adopted(SmallDisk):
    """A small disk that somebody else made and will close."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / ".holdfast-filler"

    def close(self) -> None:
        """Give the room back, and leave the disk to its owner."""
        self._filler.unlink(missing_ok=True)


def _mount_of(path: Path) -> Path | None:
    """The small disk of ours that holds this path, if one does."""
    small = [mount.point for mount in mounts() if mount.source == _SOURCE]
    return next((point for point in small if path.is_relative_to(point)), None)


def _free_bytes(path: Path) -> int:
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def _survives_limit(pid: int) -> bool:
    """Whether SIGXFSZ, which comes with EFBIG, is ignored or caught by the process."""
    seen = status(pid)
    masks = (int(seen.get(name, "0"), 16) for name in ("SigIgn", "SigCgt"))
    return any(mask >> (signal.SIGXFSZ - 1) & 1 for mask in masks)


def _errno_under_limit() -> int:
    """What a write meets in a process under the same limit."""
    script = 'trap "" XFSZ; ulimit -f 0; exec dd if=/dev/zero of="$1" bs=1 count=1'
    with tempfile.TemporaryDirectory(prefix="holdfast-") as directory:
        done = _run("/bin/sh", "-c", script, "probe", f"{directory}/probe")
    return errno.EFBIG if os.strerror(errno.EFBIG) in done.stderr else done.returncode


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        raise VerifyError(f"this fault needs the command {command[0]!r}, and it is not here")
    return subprocess.run(  # noqa: S603 - the command is our own
        command,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


def _name(code: int) -> str:
    return errno.errorcode.get(code, str(code))
