"""A promise to put things right even if this process is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from typing import Final

_WAIT_S: Final = 10.0


class Undo:
    """Runs a command when this process ends without having called `cancel`, however it ended.

    A small shell waits at the other end of a pipe. The kernel closes the pipe when we die, and
    then it acts; a mount or a moved directory does not outlive a killed test run.
    """

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        """Arm it. What must not be seen in a list of processes belongs in the environment."""
        self._shell = subprocess.Popen(  # noqa: S603 - the command is our own
            ["/bin/sh", "-c", 'read -r _ || exec "$@"', "undo", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        """The waiting shell."""
        return self._shell.pid

    def cancel(self) -> None:
        """All is put right already: do nothing. Cancelling twice does nothing."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._shell.communicate(b"done\n", timeout=_WAIT_S)
