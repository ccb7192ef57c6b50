"""A client process as its parent sees it: started, let go, stopped or killed, and read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify.children import Inbox, start
from holdfast.verify.instrument import Instrument
from holdfast.verify.process_tree import SIGNAL_TIMEOUT_S, kill_tree, resume_tree
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.workload.client import Job
from holdfast.verify.workload.fork_server import Forked, ForkServer

_LOG_BYTES_MAX: Final = 2000
_PIPE_BYTES: Final = 1 << 20
_JOBS: Final = "holdfast.verify.workload.jobs"
_COMPLETIONS: Final = frozenset({"ok", "fail", "info"})


def kill_all(clients: Sequence[ClientProcess]) -> None:
    """SIGKILL those that still run; one that ends by itself in that instant is as good."""
    for client in clients:
        if client.alive:
            try:
                client.kill()
            except FaultNotProven:
                if not await_true(lambda: not client.alive, SIGNAL_TIMEOUT_S):  # noqa: B023
                    raise
                client.read()


def kind_of(error: str) -> str:
    """An error in words, without the numbers in which one differs from the next."""
    return re.sub(r"[0-9]+", "#", error)


class ClientProcess:
    """One client. `read()` takes in what it recorded since; the rest are counts of that."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        instruments: Sequence[Instrument] = (),
        fork_server: ForkServer | None = None,
    ) -> None:
        """Start it. It opens its store at once, and waits for `go`.

        It is forked where there is a fork server and no instrument: those want a process from its start.
        """
        self.name = job.name
        self.events: list[dict[str, Any]] = []
        self.open: dict[int, dict[str, Any]] = {}
        """Operations in flight, by number."""
        self.answered = 0
        self.acknowledged = 0
        self.errors = 0
        self.error_kinds: set[str] = set()
        self.last_ok_ns = {"append": 0, "history": 0}
        self.ready: dict[str, Any] | None = None
        self.failed: dict[str, Any] | None = None
        self.killed = False
        self._log = folder / f"{job.name}.log"
        pipe, theirs = os.pipe()
        self._inbox = Inbox(pipe)
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            job_file = folder / f"{job.name}.job"
            job_file.write_text(json.dumps(asdict(replace(job, events_fd=theirs))), "utf-8")
            with self._log.open("wb") as log:
                self.process: Forked | subprocess.Popen[bytes] = (
                    start(
                        _JOBS,
                        str(job_file),
                        folder=folder,
                        log=log,
                        pass_fds=(theirs,),
                        instruments=instruments,
                    )
                    if fork_server is None or instruments or not fork_server.can_fork
                    else fork_server.fork(job_file, theirs, log.fileno())
                )
        finally:
            os.close(theirs)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    @property
    def ended(self) -> int:
        """Operations that came to an end, whichever."""
        return self.answered + self.errors

    def read(self) -> None:
        """Take in what it has recorded since the last time."""
        for event in self._inbox.take():
            self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "ready":
            self.ready = event
        elif kind == "failed":
            self.failed = event
        self.events.append(event)
        if kind == "invoke":
            self.open[event["op"]] = event
        elif kind in _COMPLETIONS:
            asked = self.open.pop(event["op"])
            self.answered += kind == "ok"
            self.acknowledged += kind == "ok" and asked["f"] == "append"
            self.errors += kind != "ok"
            if "error" in event:
                self.error_kinds.add(kind_of(event["error"]))
            if kind == "ok":
                self.last_ok_ns[asked["f"]] = event["time_ns"]

    def works_since(self, time_ns: int) -> bool:
        """Whether it could write and read after that time."""
        return min(self.last_ok_ns["append"], self.last_ok_ns["history"]) > time_ns

    def ended_since(self, time_ns: int) -> list[int]:
        """Operations that were begun before that time, and ended after it."""
        begun = {e["op"] for e in self.events if e["type"] == "invoke" and e["time_ns"] < time_ns}
        ended = [
            e["op"]
            for e in reversed(self.events)
            if e["type"] in _COMPLETIONS and e["time_ns"] >= time_ns
        ]
        return [number for number in ended if number in begun]

    @property
    def waiting(self) -> int:
        """How often its script came to a point at which it waits for another `go`."""
        return sum(event["type"] == "waiting" for event in self.events)

    def go(self) -> None:
        """Let it begin, or go on where it waits."""
        self.tell(b"go\n")

    def stop(self) -> None:
        """Ask it to end after the operation that it is in."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def kill(self) -> Evidence:
        """SIGKILL, with all that it started, and wait until it is gone; then read its end."""
        evidence = kill_tree(self.process)
        self.killed = True
        self.stop()
        self.read()
        return evidence

    def end(self) -> None:
        """Leave nothing of it behind, whatever state it is in."""
        if self.alive:
            with contextlib.suppress(Exception):  # it may be gone by itself meanwhile
                kill_tree(self.process)
        self.stop()
        if self.alive:
            self.process.kill()
        self.process.wait()
        self.read()
        self._inbox.close()

    def resume(self) -> Evidence:
        """Let a paused one go on."""
        return resume_tree(self.process)

    def last_words(self) -> str:
        """The end of what it printed: mostly a traceback."""
        lines = self._log.read_bytes()[-_LOG_BYTES_MAX:].decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def tell(self, word: bytes) -> None:
        """Send it something; one that is gone does not hear it."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(word)
                self.process.stdin.flush()
