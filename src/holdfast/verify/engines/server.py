"""An engine that is a process of this machine, and comes back on its data as we say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.clock import Clock
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.configs import settings_of
from holdfast.verify.engines.options import EngineOptions, as_settings
from holdfast.verify.engines.process import LocalProcess
from holdfast.verify.proof import Evidence

HEIRS: Final = {"redis": "valkey"}
"""Which engine reads the files of which other: Valkey those of Redis up to 7.2."""


class ServerEngine(LocalProcess):
    """What all local servers share: a binary, a named configuration, and settings over it."""

    provider = "local"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options.kind, options.storage, options.port)
        self._supply = options.supply
        self.instruments.extend(options.instruments)
        self.config = options.config
        self.settings = settings_of(options.kind, options.config, options.settings)
        self.binary = choose_binary(options.kind, options.version)
        self._options = options
        self._extra = dict(options.settings)
        self._version = self.binary.version
        self.clock: Clock | None = None
        """Its wall clock, where it was ordered with one that can be moved."""
        self.replicas: list[ServerEngine] = []

    def close(self) -> None:
        """End it and its replicas at once and remove what they left."""
        for replica in self.replicas:
            replica.close()
        super().close()

    def _in_force(self) -> Mapping[str, str]:
        """Our settings as the running engine reads them back."""
        return {}

    def _now_s(self) -> float:
        """What the running engine says the time is, in seconds since 1970."""
        raise FaultNotProven(f"clock: {self.kind} tells nobody what time it is")

    def _launch(self) -> None:
        if self._options.clock and self.clock is None:
            self.clock = Clock(self._home())
            self.instruments.insert(0, self.clock)
        super()._launch()

    def move_clock(self, by_s: float) -> Evidence:
        """Move its wall clock, also back; proven by what the engine then says the time is."""
        if self.clock is None:
            raise UsageError(f"start_engine({self.kind!r}, clock=True) has a clock to move")
        return self.clock.move(by_s, self._now_s)

    def _describe(self) -> str:
        return f"{self.kind} {self.binary.version} from {self.binary.path}"

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        raise NotImplementedError

    @property
    def version(self) -> str:
        """What the running engine says of itself."""
        return self._version

    def restart(
        self,
        *,
        config: str | None = None,
        version: str | None = None,
        settings: Mapping[str, object] | None = None,
        kind: str | None = None,
    ) -> Evidence:
        """Stop if running, then start on the same data and port with these instead.

        `settings` replaces the caller's own settings of before; None keeps them. `kind` is
        another engine that reads the same files: `valkey` after `redis`.
        """
        if self._run_dir is None:
            raise UsageError(f"the {self.kind} engine was never started: it has no data")
        before = {"pid": self.pid, "config": self.config, "version": self.version}
        if kind not in (None, self.kind, HEIRS.get(self.kind)):
            raise UsageError(f"{kind} does not read the files of {self.kind}")
        # Both can refuse, so both are asked before anything is stopped.
        extra = self._extra if settings is None else as_settings(settings)
        new = settings_of(kind or self.kind, config or self.config, extra)
        binary = choose_binary(kind or self.kind, version) if version or kind else self.binary
        self.stop()
        self.kind = binary.kind
        self.config = config or self.config
        self.settings, self.binary, self._extra = new, binary, extra
        self._version = binary.version
        self.start()
        return Evidence(
            "restart",
            f"{self.kind} {self.version} answers on port {self.port} as process {self.pid} "
            f"after {self._ready_after_s * 1000:.1f} ms, configuration {self.config}",
            {
                "before": before,
                "after": {"pid": self.pid, "config": self.config, "version": self.version},
                "in_force": dict(self._in_force()),
            },
        )
