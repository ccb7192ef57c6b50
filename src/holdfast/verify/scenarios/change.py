"""The engine comes back as another: with another configuration, or as a later version."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.binaries import Binary, find_binaries
from holdfast.verify.engines.protocol import Engine, Restartable
from holdfast.verify.engines.server import HEIRS, ServerEngine
from holdfast.verify.faults.engine import reconfigure
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, ScenarioContext
from holdfast.verify.scenarios.engine_faults import NOT_MANAGED, Away, EngineFault
from holdfast.verify.spec import EngineView, view_of
from holdfast.verify.workload.client_pool import ClientPool

_REDIS: Final = {
    "aof-always": "mixed",
    "aof-everysec": "aof-always",
    "aof-rewriting": "aof-always",
    "mixed": "aof-always",
    "rdb-only": "aof-always",
}
OTHERWISE: Final[Mapping[str, Mapping[str, str]]] = {
    "redis": _REDIS,
    "valkey": _REDIS,
    "postgres": {
        "default": "synchronous-commit-off",
        "synchronous-commit-off": "default",
        "fsync-off": "default",
        "replica": "synchronous-commit-off",
    },
}
"""What an operator changes a configuration to, by engine.

All of them keep the files that the engine reads at its start, and so lose nothing, but for one:
a Redis that is started with an append-only file for the first time reads that file and not its
snapshot. A team that runs `rdb-only` and wants to be safer loses everything by it.
"""
_NOT_FREE: Final = 8
_ONLY_THE_FILE: Final = (
    " (with `appendonly yes` it reads the append-only file at its start and not the snapshot; "
    "switch it on in the running engine first: CONFIG SET appendonly yes)"
)


class RestartOtherwise(EngineFault):
    """Restart the engine with another configuration under load, and then back again."""

    name = "restart-otherwise"
    about = "the engine is restarted with another configuration under load, and back again"
    fault = "restart"
    tests = ("durable", "atomic")
    power = Restartable
    verb = "restart"
    kept = "the engine restarted with another configuration, and back"
    clients = 2

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs a configuration to change to."""
        reason = super().reason_not(context)
        if reason is None and self._other(context) is None:
            engine = cast("Engine", context.engine)
            return f"there is nothing to change {engine.config} of {engine.kind} to"
        return reason

    def run(self, context: ScenarioContext) -> Outcome:
        """There and back. Whatever happens, the engine is left as it was."""
        home, other = _config(context), self._other(context)
        engine = cast("Any", context.engine)
        try:
            outcome = super().run(context)
        finally:
            if engine.config != home:
                engine.restart(config=home)
        words = f"the engine was restarted as {other} instead of {home}, and back"
        words += _ONLY_THE_FILE if home == "rdb-only" else ""
        outcome.findings = [_with_cause(words, finding) for finding in outcome.findings]
        return outcome

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """To the other configuration, or home; proven by the settings that it tells."""
        del met
        engine, home = cast("Engine", context.engine), _config(context)
        clients.watch(0)
        in_flight = len(clients.in_flight())
        began_ns = time.monotonic_ns()
        config = self._other(context) if engine.config == home else home
        evidence = reconfigure(engine, config=config)
        return Away(began_ns, time.monotonic_ns(), evidence, in_flight)

    @staticmethod
    def _other(context: ScenarioContext) -> str | None:
        engine = cast("Engine", context.engine)
        return OTHERWISE.get(engine.kind, {}).get(_config(context))


class Upgrade(EngineFault):
    """An older version of the engine is filled, and a later one comes back on its data."""

    name = "upgrade"
    about = "an older version of the engine is upgraded under load"
    fault = "upgrade"
    tests = ("durable", "atomic")
    power = Restartable
    verb = "upgrade"
    rounds = 1
    clients = 2

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs two versions on this machine of which the later reads the other's files."""
        if context.spec.embedded:
            return "SQLite comes inside its driver, of which one version is installed"
        engine = context.engine
        if not isinstance(engine, ServerEngine):
            return NOT_MANAGED.format(self.verb)
        if versions_around(engine.binary) is None:
            return (
                f"{engine.kind} {engine.version} is the only version here that reads its files; "
                "`holdfast engines` says how to get others"
            )
        return None

    def run(self, context: ScenarioContext) -> Outcome:
        """On an engine of its own: the one under test stays what it is."""
        found = versions_around(cast("ServerEngine", context.engine).binary)
        older, later = cast("tuple[Binary, Binary]", found)
        with start_engine(
            older.kind, config=_config(context), version=older.version, storage="disk"
        ) as engine:
            spec = replace(context.spec, engine=view_of(engine))
            return _UpgradeOf(older, later).run(replace(context, engine=engine, spec=spec))


class _UpgradeOf(Upgrade):
    """The same, once the versions are known."""

    def __init__(self, older: Binary, later: Binary) -> None:
        self._later = later
        self.kept = f"an upgrade from {older.kind} {older.version} to {later.kind} {later.version}"

    def run(self, context: ScenarioContext) -> Outcome:
        """Under load, as it is done to a service that may not stop."""
        outcome = EngineFault.run(self, context)
        outcome.findings = [_with_cause(f"after {self.kept}", one) for one in outcome.findings]
        return outcome

    def strike(
        self, context: ScenarioContext, clients: ClientPool, met: Callable[[], bool]
    ) -> Away:
        """Stop the old, start the new on the same data; proven by what it says that it is."""
        del met
        engine, later = cast("Engine", context.engine), self._later
        clients.watch(0)
        in_flight = len(clients.in_flight())
        began_ns = time.monotonic_ns()
        evidence = reconfigure(engine, kind=later.kind, version=later.version)
        return Away(began_ns, time.monotonic_ns(), evidence, in_flight)


def versions_around(binary: Binary) -> tuple[Binary, Binary] | None:
    """An older version and a later one on this machine, one of them this; None without a pair.

    Rather into this one than out of it: what is under test is to read what was there before.
    """
    line = [one for one in find_binaries(binary.kind) if _reads(binary, one)]
    at = [one.version for one in line].index(binary.version)
    before = [one for old, heir in HEIRS.items() if heir == binary.kind for one in _free(old)]
    after = find_binaries(HEIRS[binary.kind]) if binary in _free(binary.kind) else []
    pairs = [
        *((one, binary) for one in (*line[at + 1 :], *before)),
        *((binary, one) for one in (*reversed(line[:at]), *after)),
    ]
    return pairs[0] if pairs else None


def _reads(one: Binary, other: Binary) -> bool:
    """A major version of PostgreSQL does not read the files of another."""
    return one.kind != "postgres" or one.version.split(".")[0] == other.version.split(".")[0]


def _free(kind: str) -> list[Binary]:
    """Versions of Redis whose files Valkey is made to read: before the two went apart."""
    if kind not in HEIRS:
        return []
    return [one for one in find_binaries(kind) if int(one.version.split(".")[0]) < _NOT_FREE]


def _config(context: ScenarioContext) -> str:
    """The configuration that is under test, whatever the engine has just now."""
    return cast("EngineView", context.spec.engine).config


def _with_cause(words: str, finding: Finding) -> Finding:
    """What was done stands before what was then seen."""
    if finding.verdict is not Verdict.BROKEN:
        return finding
    return replace(finding, because=f"{words}: {finding.because}")
