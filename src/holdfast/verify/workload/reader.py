"""A warm process that opens a store wherever it is told, reads it whole, and closes it.

    python -m holdfast.verify.workload.reader DESCRIPTOR

To start Python and import a driver takes longer than to read a small store; many crash states
are read by one such process. Standard input is the leash: each line is a question, its end means
stop. Answers go to the pipe, since a store under test may print.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import StorageWarning, VerifyError
from holdfast.linux import waited_for_cpu_s
from holdfast.verify.adapters import plain
from holdfast.verify.blocks import Block
from holdfast.verify.children import Inbox, send, start
from holdfast.verify.spec import TargetSpec, load_target
from holdfast.verify.workload import plan
from holdfast.verify.workload.client import patiently, words_of

STARVED_MAX: Final = 5
"""On a busy machine an answer may take so many times longer."""
_READY_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store showed: for each session its read, or why it could not be opened."""

    reads: list[dict[str, Any]]
    """`session` with `messages` (and `seqs`), or with `error`."""
    not_opened: str = ""
    unknown: str = ""
    """Why nothing can be said of the store: no answer, or the reader failed."""


class Reader(Block):
    """The process as its parent sees it. One that does not answer in time is replaced."""

    def __init__(self, log: Path, *, timeout_s: float) -> None:
        self._log = log
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._start()  # it imports while others build and boot what it is going to read

    def read(self, spec: TargetSpec, sessions: Sequence[str]) -> Answer:
        """Open the store, read these sessions, close it."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None  # noqa: S101 - just started
        assert process.stdin is not None  # noqa: S101 - a pipe
        if not self._ready:  # how long Python takes to start says nothing about the store
            self._ready = bool(self._inbox.next(_READY_TIMEOUT_S))
            if not self._ready:  # it would not read the question, and its greeting is no answer
                self.close()
                return Answer([], unknown="the process that opens the store did not start")
        with contextlib.suppress(BrokenPipeError):
            question = {"spec": spec.to_json(), "sessions": list(sessions)}
            send(process.stdin.fileno(), question)
        before_s = waited_for_cpu_s(process.pid)
        said = self._inbox.next(self._timeout_s)
        if not said and not self._inbox.ended:  # a busy machine is no finding
            starved_s = waited_for_cpu_s(process.pid) - before_s
            said = self._inbox.next(min(starved_s, STARVED_MAX * self._timeout_s))
        if said:
            return Answer(**said[0])
        died = self._inbox.ended
        self.close()
        if died:
            return Answer([], unknown="the process that opened the store died")
        return Answer([], unknown=f"the store gave no answer within {self._timeout_s:g} s")

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._inbox.close()

    def _start(self) -> None:
        pipe, theirs = os.pipe()
        self._inbox = Inbox(pipe)
        self._ready = False
        try:
            with self._log.open("ab") as log:
                self._process = start(
                    __name__, str(theirs), folder=self._log.parent, log=log, pass_fds=(theirs,)
                )
        finally:
            os.close(theirs)


def main(pipe: int) -> int:
    """Answer questions until there are none."""
    os.set_inheritable(pipe, False)
    warnings.simplefilter("ignore", StorageWarning)
    send(pipe, "ready")
    for line in sys.stdin.buffer:
        question = json.loads(line)
        send(pipe, _look(TargetSpec.from_json(question["spec"]), question["sessions"]))
    return 0


def _look(spec: TargetSpec, sessions: list[str]) -> dict[str, Any]:
    try:
        target = load_target(spec)
        client = patiently(lambda: plain.Client(target))
    except VerifyError as error:
        return {"reads": [], "unknown": str(error)}
    except Exception as error:  # noqa: BLE001 - a user's open() may raise anything
        return {"reads": [], "not_opened": f"open() raised {words_of(error)}"}
    try:
        return {"reads": [_read(client, session) for session in sessions]}
    finally:
        _close(client)


def _read(client: plain.Client, session: str) -> dict[str, Any]:
    try:
        seen = patiently(lambda: client.history(session))
    except Exception as error:  # noqa: BLE001 - a user's store may raise anything
        return {"session": session, "error": words_of(error)}
    numbers = {} if seen.seqs is None else {"seqs": seen.seqs}
    names = [plan.name_of(message) for message in seen.messages]
    return {"session": session, "messages": names, **numbers}


def _close(client: plain.Client) -> None:
    try:
        client.close()
    except Exception as error:  # noqa: BLE001 - what was read was read
        print(words_of(error), file=sys.stderr)  # noqa: T201 - into the log


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
