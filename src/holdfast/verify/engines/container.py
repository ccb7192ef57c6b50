"""An engine in a container: what the providers docker and compose share."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from holdfast.errors import EngineFailed, FaultNotProven, UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.engines.configs import settings_of
from holdfast.verify.engines.naming import describe
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST, Port, reserve_port
from holdfast.verify.engines.recipes import image_of, recipe_of
from holdfast.verify.proof import Evidence

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 0.05
"""An engine that has not answered for so long is silent."""
_POLL_S: Final = 0.005
_KILLED: Final = 137
"""Exit code of a container whose first process ended by SIGKILL."""


class ContainerEngine(Block):
    """A container on a host port that we chose, so that it survives kill and start.

    Its data are in a volume of their own, which goes with `close`. A subclass supplies the
    eight verbs at the end of this class.
    """

    provider: str
    data_dir = None

    def __init__(self, options: EngineOptions) -> None:
        self.kind, self.config = options.kind, options.config
        self.recipe = recipe_of(options.kind, options.config, self.provider)
        if not isinstance(options.storage, str):
            raise UsageError(
                f"the provider {self.provider} keeps data in a volume: storage cannot be a directory"
            )
        self.settings = settings_of(options.kind, options.config, options.settings)
        self.image = image_of(options.kind, options.version)
        self.name = f"holdfast-{options.kind}-{os.getpid()}-{os.urandom(4).hex()}"
        self._options = options
        self._extra = dict(options.settings)
        self._port: Port | None = None
        self._version = ""
        self._made = False

    def __repr__(self) -> str:
        return describe(self, self.name)

    @property
    def port(self) -> int:
        """The port on loopback; the same after every restart."""
        if self._options.port is not None:
            return self._options.port
        if self._port is None:
            self._port = reserve_port()
        return self._port.number

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        return self.recipe.url.format(port=self.port, password=self._options.password)

    @property
    def version(self) -> str:
        """What the running engine says of itself."""
        return self._version

    def start(self) -> Self:
        """Run it and return when it answers; after `stop` or `kill`, on the same data."""
        if self._made:
            if not self._state()["Running"]:
                self._begin()
        else:
            # Before the first attempt, so that `close` also removes what failed half-way.
            self._made = True
            self._make()
        self._await_answer()
        return self

    def stop(self) -> None:
        """End it cleanly; its data stay. Stopping a stopped engine does nothing."""
        if self._made and self._state()["Running"]:
            if self._state()["Paused"]:
                self._let_go()
            self._end()

    def close(self) -> None:
        """Remove container and volume. Closing twice does nothing."""
        if self._made:
            self._remove()
            self._made = False
        if self._port is not None:
            self._port.release()
            self._port = None

    def log(self, lines: int = 40) -> str:
        """The last lines of its own log."""
        return self._logs(lines) if self._made else ""

    def kill(self) -> Evidence:
        """SIGKILL everything in the container; proven by its exit code."""
        before = self._running_state()
        self._kill()
        state = self._await_state(lambda state: not state["Running"], "kill")
        if state["ExitCode"] != _KILLED:
            raise FaultNotProven(f"kill: the container ended with {state['ExitCode']}, not 137")
        return Evidence(
            fault="kill",
            seen=f"process {before['Pid']} and its container ended with exit code 137",
            facts={"pid": before["Pid"], "exit_code": state["ExitCode"], "container": self.name},
        )

    def pause(self) -> Evidence:
        """Freeze every process in the container; proven by its state and by silence."""
        self._running_state()
        self._hold()
        self._await_state(lambda state: bool(state["Paused"]), "pause")
        if self._answers_within(SILENCE_S):
            raise FaultNotProven("pause: the container is paused and its engine answers")
        return Evidence(
            fault="pause",
            seen=f"the container is paused and was silent for {SILENCE_S:g} s",
            facts={"container": self.name, "paused": True},
        )

    def resume(self) -> Evidence:
        """Let it go on; proven by an answer."""
        if not self._state()["Paused"]:
            raise FaultNotProven("resume: the container is not paused")
        self._let_go()
        begun = time.monotonic()
        self._await_answer()
        took_ms = (time.monotonic() - begun) * 1000
        return Evidence("resume", f"answered after {took_ms:.1f} ms", {"container": self.name})

    def restart(
        self,
        *,
        config: str | None = None,
        version: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Evidence:
        """Stop if running, then a new container on the same volume and port with these."""
        if not self._made:
            raise UsageError(f"the {self.kind} engine was never started: it has no data")
        extra = self._extra if settings is None else {k: str(v) for k, v in settings.items()}
        recipe_of(self.kind, config or self.config, self.provider)
        new = settings_of(self.kind, config or self.config, extra)
        before = {"config": self.config, "version": self.version, "image": self.image}
        self.stop()
        self.config, self.settings, self._extra = config or self.config, new, extra
        self.image = image_of(self.kind, version) if version else self.image
        self._make_again()
        self._await_answer()
        after = {"config": self.config, "version": self.version, "image": self.image}
        return Evidence(
            fault="restart",
            seen=f"{self.kind} {self.version} answers on port {self.port}, "
            f"configuration {self.config}",
            facts={"before": before, "after": after},
        )

    def _enter(self) -> object:
        return self.start()

    def command(self) -> list[str]:
        """What runs in the container."""
        return self.recipe.arguments(self.settings)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            state = self._state()
            if not state["Running"]:
                raise self._failure(f"ended with exit code {state['ExitCode']}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {START_TIMEOUT_S:g} s")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            self._version = self.recipe.ask_version(self.port, self._options.password)
        except OSError:
            return False
        return True

    def _answers_within(self, timeout_s: float) -> bool:
        """Whether anybody reacts to a new client; Docker's own proxy takes it either way."""
        with socket.create_connection((HOST, self.port), 5) as probe:
            probe.settimeout(timeout_s)
            # Redis answers it, PostgreSQL hangs up on it, a frozen one does neither.
            probe.sendall(b"\r\n\r\nPING\r\n")
            try:
                probe.recv(1)
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True
            return True

    def _await_state(self, wanted: Any, fault: str) -> Mapping[str, Any]:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not wanted(state := self._state()):
            if time.monotonic() > deadline:
                raise FaultNotProven(f"{fault}: after {STOP_TIMEOUT_S:g} s the state is {state}")
            time.sleep(_POLL_S)
        return state

    def _running_state(self) -> Mapping[str, Any]:
        if not self._made or not (state := self._state())["Running"]:
            raise FaultNotProven(f"the {self.kind} engine is not running")
        return state

    def _failure(self, what: str) -> EngineFailed:
        words = self.log(20) or "(it said nothing)"
        return EngineFailed(
            f"{self.kind} from {self.image} {what}; its last words:\n{words}", backend=self.kind
        )

    # What a provider supplies

    def _make(self) -> None:
        """Create container and volume and start it."""
        raise NotImplementedError

    def _make_again(self) -> None:
        """Another container on the same volume."""
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _kill(self) -> None:
        raise NotImplementedError

    def _hold(self) -> None:
        raise NotImplementedError

    def _let_go(self) -> None:
        raise NotImplementedError

    def _remove(self) -> None:
        raise NotImplementedError

    def _state(self) -> Mapping[str, Any]:
        """`State` of `docker inspect`; {"Running": False, …} where there is no container."""
        raise NotImplementedError

    def _logs(self, lines: int) -> str:
        raise NotImplementedError
