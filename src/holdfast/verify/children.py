"""Child processes of the kit: how one is started or forked, heard in bounded time, and ended.

What a child says to its parent goes through a pipe of its own, one JSON value a line: its standard
output is for the store under test, which may print, and its disk may be full.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from holdfast.errors import VerifyError
from holdfast.linux import threads
from holdfast.verify.instrument import Instrument, Launch
from holdfast.verify.reaper import HELD_VARIABLE

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_CHUNK_BYTES: Final = 1 << 20
_CHUNKS_MAX: Final = 64
"""Of one taking: a pipe holds one at most, so this is all that a child which is gone has said."""
_WORDS_MAX: Final = 4000


def send(pipe: int, value: object) -> None:
    """One line, at once: SIGKILL loses none that was written."""
    # ASCII: a lone surrogate in an error's words has no other way into a pipe.
    rest = f"{_ENCODER.encode(value)}\n".encode()
    while rest:
        rest = rest[os.write(pipe, rest) :]


class Inbox:
    """The parent's end of a pipe: the lines that came, whole; half a line waits for its end."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe = pipe
        self.ended = False
        """Whether nobody can say anything any more, and all that was said has been taken."""
        self._rest: list[bytes] = []
        """Of a line that has not ended; in pieces, since to join them each time is quadratic."""

    def fileno(self) -> int:
        """Where it can be waited for."""
        return self.pipe

    def take(self) -> list[Any]:
        """What was said since the last time; never waits, nor for one who goes on talking."""
        said: list[Any] = []
        with contextlib.suppress(BlockingIOError):
            for _ in range(_CHUNKS_MAX):
                if self.ended:
                    break
                chunk = os.read(self.pipe, _CHUNK_BYTES)
                self.ended = not chunk
                said += self._values(chunk)
        return said

    def _values(self, chunk: bytes) -> list[Any]:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        self._rest.append(rest)
        return [self._value(line) for line in lines]

    def _value(self, line: bytes) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            self.ended = True  # what comes after it cannot be trusted either
            raise VerifyError(
                "a store under test wrote into a descriptor that is not its own, the pipe between "
                f"the kit's processes: {line[:100]!r}"
            ) from error

    def next(self, within_s: float) -> list[Any]:
        """What is said next, at least one line; nothing where none comes in time, or ever."""
        deadline = time.monotonic() + within_s
        said = self.take()
        while not said and not self.ended and is_readable(self.pipe, deadline - time.monotonic()):
            said = self.take()
        return said

    def rest(self, within_s: float) -> list[Any]:
        """All that is said until the end, or in that time; see `ended`."""
        deadline = time.monotonic() + within_s
        said: list[Any] = []
        while new := self.next(deadline - time.monotonic()):
            said += new
            if time.monotonic() >= deadline:
                break
        return said

    def close(self) -> None:
        """What is said now is not heard."""
        if self.pipe >= 0:
            os.close(self.pipe)
        self.pipe, self.ended = -1, True


def is_readable(descriptor: int, within_s: float | None) -> bool:
    """Whether something can be read there in that time; a pidfd can once its process has ended."""
    waiting = select.poll()  # unlike select() for any number of open files
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(None if within_s is None else max(0.0, within_s) * 1000))


def start(
    module: str,
    *arguments: str,
    folder: Path,
    log: IO[bytes],
    pass_fds: Sequence[int] = (),
    instruments: Iterable[Instrument] = (),
) -> subprocess.Popen[bytes]:
    """A new process that runs a module of ours and finds all that this one can import.

    It and all that it starts belong to the run directory which `folder` is, or lies in.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    # numpy's linear algebra starts a thread for each further core when it is imported, and a
    # process that has threads cannot be forked.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    environment[HELD_VARIABLE] = str(folder)
    launch = Launch((sys.executable, "-m", module, *arguments), environment).under(instruments)
    return subprocess.Popen(  # noqa: S603 - our own module
        launch.command,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=pass_fds,
        start_new_session=True,  # Ctrl-C is for the parent, which then ends its children
        env=launch.environment,
    )


def import_all(names: Iterable[str]) -> None:
    """Have these modules, as far as they can be had by name, and share them with every fork."""
    for name in names:
        with contextlib.suppress(Exception):  # a client that needs it is going to tell why not
            importlib.import_module(name)
    gc.freeze()  # what is shared with every fork is not written to by a collection in one


def can_fork() -> bool:
    """Whether this process is alone: a thread does not come along, and may hold a lock for ever."""
    return len(threads(os.getpid())) == 1


def fork() -> int:
    """A child of this process, as `os.fork` has it."""
    with warnings.catch_warnings():
        # From 3.12 on Python warns where a process with threads is forked; see `Child`.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def leave(code: int) -> NoReturn:
    """End a fork as Python ends a process: threads, exit functions, what is still to be printed.

    Only its modules are not taken apart: that would copy each page which it shares with its
    parent, and takes ten times as long as all the rest.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
    atexit._run_exitfuncs()  # noqa: SLF001 - the same
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # full, or closed by the store
            stream.flush()
    os._exit(code)


class Child:
    """A fork of this process that does one piece of work and says what comes of it.

    Only a fork can do what no new process could import, such as a lambda over a fixture. It runs
    nothing but that work, whatever threads the parent has, and leaves by `_exit`: nothing that
    belongs to the parent is closed or flushed twice.
    """

    def __init__(
        self, work: Callable[[Callable[[object], None]], object], *, life_s: float = 0.0
    ) -> None:
        """`work` gets the function that says something. An error of it is said as `error`.

        It lives no longer than `life_s`, where that is given.
        """
        pipe, theirs = os.pipe()
        self.pid = fork()
        if not self.pid:
            os.close(pipe)
            _live(work, theirs, life_s)
        os.close(theirs)
        self.inbox = Inbox(pipe)
        self._code: int | None = None

    def outcome(self, within_s: float) -> tuple[list[Any], int]:
        """All that it says and its exit code; killed where it does not end in time."""
        deadline = time.monotonic() + within_s
        pidfd = os.pidfd_open(self.pid)
        try:
            said = self.inbox.rest(within_s)
            # One that has closed its pipe may still have work to do, or hang.
            is_readable(pidfd, deadline - time.monotonic())
        finally:
            os.close(pidfd)
            code = self.end()
            self.inbox.close()
        return said, code

    def end(self) -> int:
        """Its exit code; it is killed if it still runs."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)  # it changes nothing about one that is leaving
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _live(work: Callable[[Callable[[object], None]], object], pipe: int, life_s: float) -> NoReturn:
    """The whole life of a child; nothing may pass into the parent's code."""
    code = 1
    try:
        gc.freeze()  # the parent's garbage is not ours to collect: it may hold connections
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, life_s)
        work(lambda value: send(pipe, value))
        code = 0
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        with contextlib.suppress(OSError):
            send(pipe, {"error": f"{type(error).__name__}: {error}"[:_WORDS_MAX]})
    finally:
        os._exit(code)
