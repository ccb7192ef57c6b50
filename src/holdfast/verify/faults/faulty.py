"""A disk that does not do what it is asked: fsync fails, reads fail, everything takes long."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify import shims
from holdfast.verify.blocks import Block
from holdfast.verify.instrument import Launch
from holdfast.verify.proof import Evidence
from holdfast.verify.rundir import RunDir
from holdfast.verify.shims.shared import shared_file

_SYNC, _READ, _WRITE, _SLOW = range(4)
_WORDS: Final = ("fsyncs failed with EIO", "reads failed with EIO", "writes failed with ENOSPC",
                 "calls were slow")  # fmt: skip
_KINDS: Final = len(_WORDS)
_WORD_BYTES: Final = 8
_PATH_BYTES: Final = 4096


class FaultyDisk(Block):
    """The disk below one directory, for every process that is started under it: an instrument.

    All is well with it until one of its verbs is called; `heal` ends whatever was.
    """

    mechanism = "preload"

    def __init__(self) -> None:
        """Its shared file goes with the process that made it, however that ends."""
        shims.library("disk")  # say now if there is none
        self._run_dir = RunDir("memory")
        self._path = self._run_dir.path / "disk"
        size_bytes = 2 * _KINDS * _WORD_BYTES + _PATH_BYTES
        self._bytes = shared_file(self._path, size_bytes, writable=True)
        words = memoryview(self._bytes)[: 2 * _KINDS * _WORD_BYTES].cast("q")
        self._left, self._done = words[:_KINDS], words[_KINDS:]

    def wrap(self, launch: Launch) -> Launch:
        """The process on our disk."""
        return shims.preload(launch, "disk", self._run_dir.path, HOLDFAST_DISK=str(self._path))

    def aim(self, directory: Path) -> None:
        """Only files below this directory are met."""
        path = str(directory.resolve()).encode("utf-8", "surrogateescape") + b"\0"
        if len(path) > _PATH_BYTES:
            raise UsageError(f"the path of {directory} is too long")
        start = 2 * _KINDS * _WORD_BYTES
        self._bytes[start : start + len(path)] = path

    def fail_syncs(self, times: int | None = None) -> None:
        """So many calls of fsync fail with EIO; without a number, every one."""
        self._left[_SYNC] = -1 if times is None else times

    def fail_reads(self, times: int | None = None) -> None:
        """So many reads fail with EIO; without a number, every one."""
        self._left[_READ] = -1 if times is None else times

    def fail_writes(self, times: int | None = None) -> None:
        """So many writes fail with ENOSPC; without a number, every one."""
        self._left[_WRITE] = -1 if times is None else times

    def slow(self, by_s: float) -> None:
        """Every write and fsync takes so much longer."""
        self._left[_SLOW] = round(by_s * 1e9)

    def heal(self) -> None:
        """All is well again."""
        for kind in range(_KINDS):
            self._left[kind] = 0

    @property
    def was_met(self) -> bool:
        """Whether any call met a fault since `landed` was asked."""
        return any(self._done)

    def landed(self) -> Evidence:
        """What was met since the last time this was asked; `FaultNotProven` if nothing was."""
        counts = {words: self._done[kind] for kind, words in enumerate(_WORDS)}
        for kind in range(_KINDS):
            self._done[kind] = 0
        seen = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        if not seen:
            raise FaultNotProven(
                "disk: no call met the fault: nothing was synced, written or read there, or a "
                "statically linked program ignores the preload"
            )
        return Evidence("disk", seen, {"mechanism": self.mechanism, **counts})

    def close(self) -> None:
        """Remove its shared file. A process that still runs on it meets no fault any more."""
        if self._run_dir.path.exists():
            self.heal()
            self._run_dir.clear()
