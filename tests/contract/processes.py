"""Client processes that write, and are ended by SIGKILL. Every other one uses the other API."""

from __future__ import annotations

import itertools
import os
import signal

from tests.contract import client
from tests.forks import CONTEXT

APIS = itertools.cycle(("sync", "async"))


class Client:
    """One writing process. `acks` holds every turn that it saw acknowledged: name -> numbers."""

    def __init__(self, url: str, session: str, name: str, *, count: int | None = None) -> None:
        if url.startswith("sqlite:"):
            # Whoever writes without a pause leaves others little room: SQLite has no queue.
            url += "?busy_timeout_s=60"
        pipe, theirs = CONTEXT.Pipe(duplex=False)
        arguments = (next(APIS), url, session, name, count, theirs)
        self.process = CONTEXT.Process(target=client.main, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self._said = os.fdopen(os.dup(pipe.fileno()))
        pipe.close()
        self.acks: dict[str, tuple[int, int]] = {}
        assert self._line() == "ready"

    def read_ack(self) -> None:
        """Wait for the next ack."""
        name, first, last = self._line().split()
        self.acks[name] = (int(first), int(last))

    def kill(self) -> None:
        """SIGKILL, wait until it is gone, then read what it had said before it died."""
        self.process.kill()
        assert self._exit_code(within_s=10) == -signal.SIGKILL
        self._read_rest()

    def finish(self) -> None:
        """Wait for its own end."""
        self._read_rest()
        assert self._exit_code(within_s=60) == 0

    def _exit_code(self, within_s: float) -> int | None:
        self.process.join(within_s)
        return self.process.exitcode

    def _line(self) -> str:
        line = self._said.readline()
        assert line, "the client ended early"
        return line.rstrip("\n")

    def _read_rest(self) -> None:
        for line in self._said:
            if line.endswith("\n") and line.count(" ") == 2:  # a whole line; SIGKILL may cut one
                name, first, last = line.split()
                self.acks[name] = (int(first), int(last))
        self._said.close()
