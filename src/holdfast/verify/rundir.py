"""Run directories: one per engine, known to the reaper before anything is started in it."""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from holdfast.errors import VerifyError
from holdfast.linux import file_system_of, read_process
from holdfast.verify import reaper
from holdfast.verify.run_as import let_pass

DISK_VARIABLE: Final = "HOLDFAST_DISK_DIR"
"""Environment variable that names a directory on a real disk."""

IN_MEMORY: Final = ("tmpfs", "ramfs")
"""Types of file systems that do not outlive the power."""
_EXIT_TIMEOUT_S: Final = 15.0

Storage = Literal["memory", "disk"] | Path
"""Where data directories are made: on tmpfs (fast, survives SIGKILL), on a disk, or in there."""


class RunDir:
    """A directory that does not outlive this process, nor does any process of it."""

    def __init__(self, storage: Storage) -> None:
        root = root_of(storage)
        _reaper.sweep(root)
        self.path = _new_path(root)
        _reaper.hold(str(self.path))
        self.path.mkdir(mode=0o700)
        let_pass(self.path)

    def rename(self) -> None:
        """Go on under a new name, so that a process that knew the old one finds nothing there."""
        old, new = self.path, _new_path(self.path.parent)
        _reaper.hold(str(new))
        old.rename(new)
        self.path = new
        _reaper.free(str(old))

    def know(self, pid: int) -> None:
        """Tell the reaper of a process of this directory."""
        _reaper.know(str(self.path), pid)

    def end_processes(self) -> None:
        """End every process of it; its files stay."""
        reaper.end_processes(str(self.path))

    def clear(self) -> None:
        """End every process of it and remove it; the reaper forgets it."""
        reaper.clear(str(self.path))
        _reaper.free(str(self.path))

    @property
    def environment(self) -> dict[str, str]:
        """Our environment, with the word that ties a process to this directory."""
        return {**os.environ, reaper.HELD_VARIABLE: str(self.path)}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory for jobs, logs and histories of this run; only we can look inside.

    A job may name a password. Processes that were started with it as `folder` end with it.
    """
    run_dir = RunDir(Path(tempfile.gettempdir()))
    try:
        run_dir.path.chmod(0o700)
        yield run_dir.path
    finally:
        run_dir.clear()


def cache_dir() -> Path:
    """The directory of this package in the user's cache; what is in it is run, so it is ours."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise VerifyError(
                f"{path} belongs to another user (uid {found.st_uid}), and what is in it would be "
                "run. Nothing was started. Set XDG_CACHE_HOME to a directory of your own"
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o700)
        return path
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write_private(path: Path, text: str) -> None:
    """A new file, whole or absent, that nobody else can read."""
    part = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.rename(path)


def _new_path(root: Path) -> Path:
    return root / f"{reaper.DIR_PREFIX}{reaper.owner_name(os.getpid())}-{os.urandom(8).hex()}"


def root_of(storage: Storage) -> Path:
    """The directory in which run directories of this storage are made."""
    if isinstance(storage, Path):
        return storage.absolute()
    return _memory_root() if storage == "memory" else _disk_root()


def _memory_root() -> Path:
    shared = Path("/dev/shm")  # noqa: S108 - each run directory in it has a random name of its own
    if os.access(shared, os.W_OK) and file_system_of(shared) in IN_MEMORY:
        return shared
    return Path(tempfile.gettempdir())


def _disk_root() -> Path:
    named = os.environ.get(DISK_VARIABLE)
    candidates = [Path(named)] if named else [Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108
    for candidate in candidates:
        if os.access(candidate, os.W_OK) and file_system_of(candidate) not in IN_MEMORY:
            return candidate
    looked = ", ".join(f"{path} ({file_system_of(path)})" for path in candidates)
    raise VerifyError(
        f"storage='disk' was asked for and no writable directory is on a disk; looked at: {looked}. "
        f"Set {DISK_VARIABLE} to one."
    )


class _ReaperLink:
    """Our end of the pipe to the reaper; it is started at first use, and again if it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._pid = 0
        self._pipe = -1
        self._lines: dict[str, list[str]] = {}
        self._swept: set[str] = set()

    def hold(self, run_dir: str) -> None:
        self._say(f"hold {run_dir}", keep_for=run_dir)

    def know(self, run_dir: str, pid: int) -> None:
        process = read_process(pid)
        if process:
            self._say(f"pid {pid} {process.started} {run_dir}", keep_for=run_dir)

    def free(self, run_dir: str) -> None:
        self._lines.pop(run_dir, None)
        self._say(f"free {run_dir}")

    def sweep(self, root: Path) -> None:
        """Clear what dead runs left in this directory; once in the life of this process."""
        if str(root) not in self._swept:
            self._say(f"sweep {root}")
            self._swept.add(str(root))

    def _say(self, line: str, keep_for: str | None = None) -> None:
        with self._lock:
            if self._owner != os.getpid():  # the first use, or the first after a fork
                self._lines, self._swept = {}, set()
                atexit.register(self._finish, os.getpid())
                self._begin()
            if keep_for is not None:
                self._lines.setdefault(keep_for, []).append(line)
            try:
                self._write(line)
            except BrokenPipeError:  # somebody killed the reaper: a new one learns everything
                os.close(self._pipe)
                os.waitpid(self._pid, 0)
                self._begin()

    def _write(self, line: str) -> None:
        os.write(self._pipe, line.encode("utf-8", "surrogateescape") + b"\n")

    def _begin(self) -> None:
        self._owner = os.getpid()
        me = read_process(self._owner)
        command = [sys.executable, "-I", "-S", reaper.__file__]
        listen, self._pipe = os.pipe()
        actions = [
            (os.POSIX_SPAWN_DUP2, listen, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        # In a session of its own, so that Ctrl-C or a signal to our group does not reach it.
        self._pid = os.posix_spawn(
            command[0],
            [*command, str(self._owner), me.started if me else "0"],
            os.environ,
            file_actions=actions,
            setsid=True,
        )
        os.close(listen)
        for line in [line for lines in self._lines.values() for line in lines]:
            self._write(line)

    def _finish(self, owner: int) -> None:
        """At exit: let the reaper clear what nobody closed, and wait for it."""
        if os.getpid() != owner or self._owner != owner:
            return
        os.close(self._pipe)
        self._owner = 0
        reaper.await_gone([self._pid], _EXIT_TIMEOUT_S)


_reaper = _ReaperLink()
