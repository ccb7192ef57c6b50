"""A process that has imported what a target needs, and of which its clients are forked.

    python -m holdfast.verify.workload.fork_server SOCKET MODULES.json

A new process takes a quarter of a second and more until it has its imports; a fork takes
milliseconds. The store itself is never opened here, only in the forks. Each request comes over
the socket with the three descriptors that a client has: its leash, its pipe, its log.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from holdfast.errors import VerifyError
from holdfast.verify import indexes
from holdfast.verify.blocks import Block
from holdfast.verify.children import can_fork, fork, import_all, is_readable, leave, start
from holdfast.verify.workload import jobs

_REQUEST_BYTES: Final = 1 << 16
_READY_TIMEOUT_S: Final = 30.0
_END_TIMEOUT_S: Final = 10.0
_GONE: Final = "the process of which clients are forked has ended, or does not answer"
UNSEEN: Final = 255
"""The exit code of a client whose parent, the fork server, ended before it: nobody can know it."""


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits: a question whose answer nobody took would be answered to the next one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Forked:
    """A client that was forked, as its parent would see one that was started."""

    def __init__(self, fork_server: ForkServer, pid: int, leash: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = leash
        self.returncode: int | None = None
        self._fork_server = fork_server
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and no longer than that."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"client {self.pid}", timeout or 0.0)
        return code

    def kill(self) -> None:
        """SIGKILL."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and is_readable(self._pidfd, timeout):
            with _undisturbed():
                # Until it is asked for, it stays a zombie: its number is nobody else's.
                try:
                    self.returncode = self._fork_server.exit_code(self.pid)
                except VerifyError:
                    self.returncode = UNSEEN
                os.close(self._pidfd)
        return self.returncode


class ForkServer(Block):
    """The parent's end. `open_fork_server` returns None where clients cannot be forked."""

    def __init__(
        self, process: subprocess.Popen[bytes], link: socket.socket, modules_file: Path
    ) -> None:
        self._process, self._link, self._modules_file = process, link, modules_file
        self.can_fork = True
        """Whether a fork of it is as good as a new process."""

    def fork(self, job_file: Path, pipe: int, log: int) -> Forked:
        """A client that does the job in this file."""
        with _undisturbed():
            leash, mine = os.pipe()
            try:
                pid = self._ask({"fork": str(job_file)}, [leash, pipe, log])["pid"]
            except VerifyError:
                os.close(mine)
                raise
            finally:
                os.close(leash)
            return Forked(self, pid, os.fdopen(mine, "wb"))

    def learn(self, modules: Sequence[str]) -> None:
        """Have these modules too, which a client was seen to need; see `can_fork` afterwards."""
        self._modules_file.write_text(json.dumps(modules), "utf-8")  # too long for a request
        try:
            self.can_fork = self._ask({"import": str(self._modules_file)})["ready"]
        except VerifyError:  # one of them ends the process that imports it, or takes too long
            self.can_fork = False
            self.close()

    def exit_code(self, pid: int) -> int:
        """Of one that has ended; the fork server is its parent."""
        code: int = self._ask({"wait": pid})["code"]
        return code

    def close(self) -> None:
        """End it; clients that still run are not touched."""
        self._link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        self._process.kill()
        self._process.communicate()

    def _ask(self, question: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        try:
            self._link.sendmsg([json.dumps(question).encode()], [rights] if fds else [])
        except OSError as error:
            raise VerifyError(_GONE) from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            words = self._link.recv(_REQUEST_BYTES)
        except OSError as error:
            raise VerifyError(_GONE) from error
        if not words:
            raise VerifyError(_GONE)
        answer: dict[str, Any] = json.loads(words)
        return answer


def open_fork_server(modules: Sequence[str], folder: Path) -> ForkServer | None:
    """A fork server that has these modules, which clients of the target are likely to need.

    None where a fork would not be as good as a new process.
    """
    modules_file = folder / "fork-server.json"
    modules_file.write_text(json.dumps(modules), "utf-8")
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, (folder / "fork-server.log").open("wb") as log:
        fds = (theirs.fileno(),)
        words = (str(fds[0]), str(modules_file))
        process = start(__name__, *words, folder=folder, log=log, pass_fds=fds)
    fork_server = ForkServer(process, mine, modules_file)
    mine.settimeout(_READY_TIMEOUT_S)
    with contextlib.suppress(VerifyError):
        if fork_server._answer()["ready"]:  # noqa: SLF001 - of this module
            return fork_server
    process.kill()
    fork_server.close()
    return None


def main(descriptor: str, modules_file: str) -> int:
    """Import, then fork a client for each request; returns in the server only."""
    link = socket.socket(fileno=int(descriptor))
    os.set_inheritable(link.fileno(), False)
    modules = _import(modules_file)
    if any(name.startswith("holdfast.backends.") for name in modules):
        indexes.claim("")  # each client of ours asks what is installed: looked up once for all
    link.send(json.dumps({"ready": can_fork()}).encode())
    job = _serve(link)
    if job is not None:
        leave(jobs.main(*job))
    return 0


def _import(modules_file: str) -> list[str]:
    modules: list[str] = json.loads(Path(modules_file).read_text("utf-8"))
    import_all(modules)
    return modules


def _serve(link: socket.socket) -> tuple[str, int] | None:
    """Answer requests until there are none; in a fork, the job that it is to do, and its pipe."""
    size = array.array("i").itemsize
    while True:
        words, sent, _, _ = link.recvmsg(_REQUEST_BYTES, socket.CMSG_SPACE(3 * size))
        if not words:
            return None
        request = json.loads(words)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        elif "import" in request:
            _import(request["import"])
            answer = {"ready": can_fork()}
        else:
            fds = array.array("i")
            fds.frombytes(sent[0][2])
            pid = fork()
            if not pid:
                link.close()
                leash, pipe, log = fds
                _become(leash, log)
                return str(request["fork"]), pipe
            for fd in fds:
                os.close(fd)
            answer = {"pid": pid}
        link.send(json.dumps(answer).encode())


def _become(leash: int, log: int) -> None:
    """A process of its own, with the standard streams of one that was started."""
    os.setsid()
    for fd, place in ((leash, 0), (log, 1), (log, 2)):
        os.dup2(fd, place)
    os.close(leash)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
