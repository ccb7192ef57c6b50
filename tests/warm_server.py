"""The process of tests/warm.py that is forked for each call of the command.

python -m tests.warm_server SOCKET
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence

from holdfast import cli
from holdfast.verify import check_command  # noqa: F401 - what takes longest to import
from holdfast.verify.children import fork, leave

FDS = 3
REQUEST_BYTES = 1 << 18


def serve(descriptor: str) -> None:
    """Fork for each request and say how it ended; until there are none."""
    with socket.socket(fileno=int(descriptor)) as link:
        os.set_inheritable(link.fileno(), False)
        while True:
            request, fds, _, _ = socket.recv_fds(link, REQUEST_BYTES, FDS)
            if not request:
                return
            pid = fork()
            if not pid:
                link.close()
                _become(fds, **json.loads(request))
                cli.main()
            for fd in fds:
                os.close(fd)
            _, status = os.waitpid(pid, 0)
            link.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(
    fds: Sequence[int], arguments: Sequence[str], cwd: str, env: dict[str, str], folder: str
) -> None:
    """As a process that was started: `folder` is where the script lies, first in its path."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = ["holdfast", *arguments], folder
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
        os.close(fd)


if __name__ == "__main__":
    try:
        serve(sys.argv[1])
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else ended.code is not None)
