"""Client processes that write, and are ended by SIGKILL. Every other one uses the other API."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).with_name("client.py")
APIS = itertools.cycle(("sync", "async"))


class Client:
    """One writing process. `acks` holds every turn that it saw acknowledged: name -> numbers."""

    def __init__(self, url: str, session: str, name: str, *, count: int | None = None) -> None:
        arguments = [] if count is None else ["--count", str(count)]
        if url.startswith("sqlite:"):
            # Whoever writes without a pause leaves others little room: SQLite has no queue.
            url += "?busy_timeout_s=60"
        self.process = subprocess.Popen(
            [sys.executable, str(CLIENT), next(APIS), url, session, name, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.acks: dict[str, tuple[int, int]] = {}
        assert self._line() == "ready"

    def read_ack(self) -> None:
        """Wait for the next ack."""
        name, first, last = self._line().split()
        self.acks[name] = (int(first), int(last))

    def kill(self) -> None:
        """SIGKILL, wait until it is gone, then read what it had said before it died."""
        os.kill(self.process.pid, signal.SIGKILL)
        assert self.process.wait(timeout=10) == -signal.SIGKILL
        self._read_rest()

    def finish(self) -> None:
        """Wait for its own end."""
        self._read_rest()
        assert self.process.wait(timeout=60) == 0

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the client ended early"
        return line.rstrip("\n")

    def _read_rest(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n") and line.count(" ") == 2:  # a whole line; SIGKILL may cut one
                name, first, last = line.split()
                self.acks[name] = (int(first), int(last))
        self.process.stdout.close()
