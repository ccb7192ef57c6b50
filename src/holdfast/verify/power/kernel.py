"""The few system calls of a disk that can lose its power, for which Python has no name."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")

_LOOP_CONTROL: Final = "/dev/loop-control"
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_CONFIGURE: Final = 0x4C0A
_LOOP_SET_STATUS64: Final = 0x4C04
_LOOP_GET_STATUS64: Final = 0x4C05
_LOOP_INFO: Final = struct.Struct("=5Q4I64s64s32s2Q")
_LOOP_CONFIG: Final = struct.Struct("=2I232s64x")
_AUTOCLEAR: Final = 4
_LOOP_TRIES: Final = 50
_LOOP_MAJOR: Final = 7

_SHUTDOWN: Final = 0x8004587D  # EXT4_IOC_SHUTDOWN, which is also XFS_IOC_GOINGDOWN
_NO_LOG_FLUSH: Final = 2

_MS_NOSUID_NODEV_NOATIME: Final = 2 | 4 | 1024
_MNT_DETACH: Final = 2
_SYS_CACHESTAT: Final = 451
_WRITE_AND_WAIT: Final = 7

_libc: Final = ctypes.CDLL(None, use_errno=True)
_lock: Final = threading.Lock()


class LoopDevice:
    """A block device on a file. The kernel frees it with its last user, however that one ends."""

    def __init__(self, backing: int) -> None:
        """Attach the file of this descriptor; `OSError` where this user or kernel cannot."""
        self._file = -1
        for _ in range(_LOOP_TRIES):
            self.path = _free_loop()
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            info = _LOOP_INFO.pack(*[0] * 8, _AUTOCLEAR, b"holdfast", b"", b"", 0, 0)
            try:
                fcntl.ioctl(self._file, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(backing, 4096, info))
            except OSError as error:
                self.let_go()
                if error.errno != errno.EBUSY:  # otherwise another process was faster
                    raise
            else:
                return
        raise OSError(errno.EBUSY, "no loop device is free", _LOOP_CONTROL)

    def drain(self) -> None:
        """Return when whatever the device was told to write is written."""
        info = fcntl.ioctl(self._file, _LOOP_GET_STATUS64, bytes(_LOOP_INFO.size))
        # The same status again: the kernel lets every request finish before it takes it.
        fcntl.ioctl(self._file, _LOOP_SET_STATUS64, info)

    def let_go(self) -> None:
        """From here on only what is mounted from it keeps it. Twice is once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def attached(self) -> bool:
        """Whether it still has a file behind it."""
        return Path(f"/sys/block/{Path(self.path).name}/loop/backing_file").exists()


def _free_loop() -> str:
    """A free loop device; made where the kernel has it and /dev does not, as in a container."""
    with _lock:
        control = os.open(_LOOP_CONTROL, os.O_RDWR | os.O_CLOEXEC)
        try:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        finally:
            os.close(control)
    path = f"/dev/loop{number}"
    if not Path(path).exists():
        with contextlib.suppress(FileExistsError):
            os.mknod(path, 0o060660, os.makedev(_LOOP_MAJOR, number))
    return path


def mount_ext4(device: str, where: Path) -> None:
    """Mount it; the journal is replayed as after a crash."""
    flags = ctypes.c_ulong(_MS_NOSUID_NODEV_NOATIME)
    place = os.fsencode(where)
    _check(_libc.mount(os.fsencode(device), place, b"ext4", flags, b""), f"mount {where}")


def unmount(where: Path) -> None:
    """Take it away from there; a process that still has a file of it open keeps only that."""
    _check(_libc.umount2(os.fsencode(where), _MNT_DETACH), f"unmount {where}")


def shut_down(mount: int) -> None:
    """The file system writes nothing from now on, not even its log."""
    fcntl.ioctl(mount, _SHUTDOWN, struct.pack("=I", _NO_LOG_FLUSH))


def sync_file_system(descriptor: int) -> None:
    """Everything in that file system is on its device."""
    _check(_libc.syncfs(descriptor), "syncfs")


def write_range(descriptor: int, offset: int, length: int) -> None:
    """Write the dirty pages of this range, and nothing that describes them."""
    arguments = (ctypes.c_int64(offset), ctypes.c_int64(length), _WRITE_AND_WAIT)
    _check(_libc.sync_file_range(descriptor, *arguments), "sync_file_range")


def dirty_bytes(descriptor: int) -> int:
    """How much of a file is in the page cache only. `OSError` before Linux 6.5."""
    whole = (ctypes.c_uint64 * 2)(0, 0)
    found = (ctypes.c_uint64 * 5)()
    done = _libc.syscall(_SYS_CACHESTAT, descriptor, whole, found, 0)
    _check(done, "cachestat")
    _, dirty, writeback, *_ = found
    return (dirty + writeback) * PAGE_BYTES


def counts_dirty_pages() -> bool:
    """Whether this kernel can tell what is in the page cache only."""
    with contextlib.suppress(OSError), Path(__file__).open("rb") as file:
        return dirty_bytes(file.fileno()) >= 0
    return False


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
