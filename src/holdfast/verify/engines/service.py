"""Any service command under test: on its own data directory and port, killed and brought back."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from holdfast.errors import EngineMissing, UsageError
from holdfast.linux import descendants, listeners
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.process import START_TIMEOUT_S, LocalProcess
from holdfast.verify.engines.raw_protocol import http_status
from holdfast.verify.power import open_supply
from holdfast.verify.proof import Evidence
from holdfast.verify.rundir import Storage

_PROBE_TIMEOUT_S: Final = 5.0
_STATUS_OK: Final = range(200, 300)


class Service(LocalProcess):
    """A started command that answers on its health path.

    In `command` and in the values of `env`, `{port}`, `{data_dir}` and `{url}` are filled in.
    The environment has PORT and DATA_DIR besides. Port and data directory are the same after
    every restart, and go with `close`. With `power` the data directory is on a disk of which the
    power can be cut.
    """

    provider = "local"

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        health: str | None = "/health",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        port: int | None = None,
        storage: Storage = "memory",
        start_timeout_s: float = START_TIMEOUT_S,
        power: str | None = None,
    ) -> None:
        supply = None if power is None else open_supply(power)
        super().__init__("service", storage if supply is None else supply.directory, port)
        if supply is not None:
            self._supply = supply
            self.instruments.extend(supply.instruments)
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        if not self.command:
            raise UsageError("a service needs a command")
        self.health = health
        self.start_timeout_s = start_timeout_s
        self._env = dict(env or {})
        self._cwd = Path(cwd) if cwd is not None else Path.cwd()

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> Self:
        """Run it and return when its health path answers 2xx; without one, when it listens."""
        try:
            return super().start()
        except FileNotFoundError as error:
            raise EngineMissing(
                f"no program {self.command[0]!r}; looked at PATH from {self._cwd}"
            ) from error

    def restart(self) -> Evidence:
        """Stop it if it runs (SIGTERM), then start it on the same data and port."""
        before = self.pid
        self.stop()
        self.start()
        seen = f"service answers on port {self.port} after {self._ready_after_s * 1000:.1f} ms"
        return Evidence("restart", seen, {"before": {"pid": before}, "after": {"pid": self.pid}})

    def _working_dir(self) -> Path:
        return self._cwd

    def _command(self) -> list[str]:
        return [self._fill(word) for word in self.command]

    def _environment(self) -> dict[str, str]:
        own = {"PORT": str(self.port), "DATA_DIR": str(self.data_dir)}
        given = {name: self._fill(value) for name, value in self._env.items()}
        return {**super()._environment(), **own, **given}

    def _fill(self, text: str) -> str:
        """Only these three words: braces of the command's own stay as they are."""
        for name, value in (
            ("{port}", str(self.port)),
            ("{data_dir}", str(self.data_dir)),
            ("{url}", self.url),
        ):
            text = text.replace(name, value)
        return text

    def _answers(self) -> bool:
        pid = self.pid
        if pid is None or not bool(listeners(self.port, descendants([pid]))):
            return False
        if self.health is None:
            return True
        return http_status(self.port, self.health, timeout_s=_PROBE_TIMEOUT_S) in _STATUS_OK

    def _ask_to_stop(self) -> None:
        self._running().send_signal(signal.SIGTERM)

    def _describe(self) -> str:
        return f"the service `{shlex.join(self.command)}`"
