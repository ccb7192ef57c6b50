"""The command `holdfast` without the start of Python that each call of it would take.

A process that has imported the command is forked for each call, which has its own arguments,
folder, environment and streams. That a cold start works, and what it imports, is tested in
tests/packaging.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import warm_server

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 110.0


class WarmCommand:
    """The caller's end."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: dict[str, str], given: str | None
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does it, with output as text."""
        request = {"arguments": arguments, "cwd": str(cwd), "env": env}
        request["folder"] = str(Path(sys.executable).parent)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(warm_server.FDS)]
            files[0].write((given or "").encode())
            files[0].seek(0)
            fds = [file.fileno() for file in files]
            socket.send_fds(self._link, [json.dumps(request).encode()], fds)
            try:
                code = int(self._link.recv(warm_server.REQUEST_BYTES))
            except TimeoutError:
                self._link.close()  # an answer that comes later is not the next call's
                raise
            out, err = (os.pread(fd, os.fstat(fd).st_size, 0) for fd in fds[1:])
        return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))


def _text(said: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(said)).read()


@pytest.fixture(scope="session")
def warm_command() -> Iterator[WarmCommand]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(TIMEOUT_S)
    fd = theirs.fileno()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", warm_server.__name__, str(fd)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
        )
    with mine:
        yield WarmCommand(mine)
    process.wait(TIMEOUT_S)
