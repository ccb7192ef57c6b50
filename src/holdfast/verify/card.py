"""The durability card: every configuration of an engine, SIGKILL beside power cuts, counted.

With a topology it is every setup of that, and failovers.
"""

from __future__ import annotations

import contextlib
import functools
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from holdfast.errors import EngineFailed, UsageError, VerifyError
from holdfast.model import Durability
from holdfast.verify.check import Watcher, machine
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import Engine, Topology, start_engine
from holdfast.verify.engines.configs import CONFIGS
from holdfast.verify.engines.protocol import Killable, PowerCuttable
from holdfast.verify.engines.sqlite import SqliteEngine
from holdfast.verify.result import CheckResult
from holdfast.verify.result_card import HELD_S, SURVIVES, Acked, Loss, Row, card_of, loss_of
from holdfast.verify.rundir import scratch
from holdfast.verify.scenarios.base import OF_SEVERAL
from holdfast.verify.scenarios.fault_timing import await_weak_window
from holdfast.verify.scenarios.power import why_not
from holdfast.verify.setups import SETUPS, Setup
from holdfast.verify.spec import HOLDFAST_TARGETS, TargetSpec, view_of
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from holdfast.verify.workload.client_process import ClientProcess, kill_all
from holdfast.verify.workload.fork_server import ForkServer, open_fork_server
from holdfast.verify.workload.plan import Shape, Step

ROUNDS: Final = 5
ROUNDS_MIN: Final = 2
CLIENTS: Final = 2
ACKS: Final = (80, 240)
"""Appends acknowledged in a round before the fault comes: at least, at most."""
LOAD_S: Final = (0.3, 1.4)
"""So long clients write before a power cut: a policy that syncs every second must have done so."""
_SHAPE: Final = Shape("", sessions=1, steps_per_session=25, keyed=False, appends_only=True)
READ_ATTEMPTS: Final = 20
_SEVERAL: Final = ("cluster", "replica")
_PRAGMAS: Final = "holdfast.verify.adapters.sqlite_pragmas"
_CHROMA: Final = "holdfast.verify.adapters.chroma_log"
BESIDE: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "sqlite": {
        name.replace("_", "+").upper(): ("sqlite", f"{_PRAGMAS}:{name}")
        for name in ("delete_full", "delete_extra", "wal_full", "wal_normal", "wal_off")
    },
    "chroma": {
        "server": ("chroma", f"{_CHROMA}:server_queued"),
        "server, index written": ("chroma", f"{_CHROMA}:server_indexed"),
        "library": ("sqlite", f"{_CHROMA}:library_queued"),
        "library, index written": ("sqlite", f"{_CHROMA}:library_indexed"),
    },
}
"""What is measured beside our own store: a name for the row -> the engine and the target."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the card: a target on an engine of this configuration."""

    row: str
    target: str
    kind: str
    config: str | None
    version: str | None
    topology: str | None = None
    setup: Setup | None = None
    """Of the topology's members, where there is one."""


def make_card(options: CheckOptions, watcher: Watcher) -> CheckResult:
    """Measure every configuration under SIGKILL and power cuts, or every setup under failovers."""
    began = time.monotonic()
    subjects = subjects_of(options)
    known = [name for name in SURVIVES if (name in OF_SEVERAL) is bool(options.topology)]
    faults = [fault for fault in known if fault in options.wanted_faults]
    if not faults:
        raise UsageError(f"a durability card needs a fault of: {', '.join(known)}")
    rounds = max(ROUNDS_MIN, round(ROUNDS * options.scale))
    require = options.required
    rows: list[Row] = []
    versions: dict[str, str | None] = {}
    for subject in subjects:
        for fault in faults:
            watcher.say(f"{subject.row}: {fault}")
            row, version = measure(subject, fault, options.seed, rounds)
            rows.append(row)
            versions[subject.kind] = version or versions.get(subject.kind)
            watcher.done(f"{subject.row}, {fault}", str(row.verdict(require)))
    if options.target == "sqlite":
        versions["sqlite3 of Python"] = sqlite3.sqlite_version
    environment = {**machine(time.monotonic() - began), "engine": versions}
    return card_of(options.target, options.seed, require, rows, environment, options.command)


def subjects_of(options: CheckOptions) -> list[Subject]:
    """Our own store on every configuration of its engine, and what stands beside it."""
    kind = options.target
    if kind not in CONFIGS:
        raise UsageError(f"--all-configs is for one of our own: {', '.join(CONFIGS)}")
    if options.config is not None:
        raise UsageError("--all-configs takes every configuration: leave --config out")
    version = options.engine_version
    if options.topology is not None:
        return [
            Subject(row, kind, kind, None, version, options.topology, setup)
            for row, setup in _setups(kind, options.topology).items()
        ]
    rows = [
        Subject("holdfast" if kind == "sqlite" else config, kind, kind, config, version)
        for config in CONFIGS[kind]
        if config not in _SEVERAL and kind in HOLDFAST_TARGETS
    ]
    beside = BESIDE.get(kind, {}).items()
    return rows + [Subject(row, target, engine, None, version) for row, (engine, target) in beside]


def _setups(kind: str, topology: str) -> Mapping[str, Setup]:
    known = SETUPS.get(kind, {})
    if topology not in known:
        there = ", ".join(known) or "none"
        raise UsageError(f"{kind} has no topology {topology!r}; there are: {there}")
    return known[topology]


def measure(subject: Subject, fault: str, seed: int, rounds: int) -> tuple[Row, str | None]:
    """One configuration under one fault, so many times; and the version of its engine."""
    row = Row(subject.row, fault, not_run=why_not() if fault == "power" else None)
    version = None
    while row.not_run is None and len(row.losses) < rounds:
        version = _on_one_engine(subject, row, seed, rounds)
    return row, version


def _on_one_engine(subject: Subject, row: Row, seed: int, rounds: int) -> str:
    """Rounds on the same data, as long as it can be read at all."""
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(
            start_engine(
                subject.kind,
                config=subject.config,
                version=subject.version,
                # SIGKILL leaves what the kernel has, wherever that is; a slow disk would only
                # hold up the writes of some policies, and that is not the question here.
                storage="memory",
                power="best" if row.fault == "power" else None,
                topology=subject.topology,
                settings=dict(subject.setup.settings) if subject.setup else {},
                partitions=subject.topology is not None and subject.kind != "postgres",
            )
        )
        folder = stack.enter_context(scratch())
        require = subject.setup.require if subject.setup else Durability.MEMORY
        spec = TargetSpec(subject.target, require=require.name)
        work = _Measure(engine, spec, folder, row, seed)
        stack.callback(work.close)
        try:
            while len(row.losses) < rounds:
                row.losses.append(work.round(len(row.losses)))
                if row.losses[-1].trouble:
                    break
        except VerifyError as error:
            row.not_run = str(error)
        return engine.version


@dataclass(slots=True)
class _Measure:
    """Rounds on one engine: write, strike, look what is left."""

    engine: Engine
    spec: TargetSpec
    folder: Path
    row: Row
    seed: int
    chance: random.Random = field(init=False)
    fork_server: ForkServer | None = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/{self.row.config}/{self.row.fault}")  # noqa: S311
        self.spec = replace(self.spec, engine=view_of(self.engine))
        self.fork_server = open_fork_server(self.spec.likely_modules, self.folder)

    def round(self, number: int) -> Loss:
        """Clients write as fast as they can, the fault comes, another client reads it all."""
        shape = replace(_SHAPE, name=f"r{number}")
        with self._clients(f"{self.row.fault}.{number}") as clients:
            working = clients.start(CLIENTS, shape=shape)
            if len(working) < CLIENTS:
                raise VerifyError(clients.trouble[0])
            self.row.level = (working[0].ready or {}).get("level")
            for client in working:
                client.go()
            if not clients.until_acknowledged(self.chance.randint(*ACKS)):
                raise VerifyError(f"it acknowledged only {clients.acknowledged()} appends in time")
            if self.row.fault == "power":
                clients.watch(self.chance.uniform(*LOAD_S))
            if self.row.fault == "failover":
                several = cast("Topology", self.engine)
                several.partition(several.primary())
                clients.watch(HELD_S)
            await_weak_window(self.engine, clients)
            if clients.trouble:
                raise VerifyError(clients.trouble[0])
            at_ns, unsynced = self._strike(working)
            clients.watch(0)
            acked = list(_acked(working))
            found, trouble = self._look(clients, acked)
            return loss_of(acked, found, at_ns, unsynced_bytes=unsynced, trouble=trouble)

    def close(self) -> None:
        """Leave no process behind."""
        if self.fork_server is not None:
            self.fork_server.close()

    def _clients(self, name: str) -> ClientPool:
        clients = ClientPool(
            self.spec,
            self.folder,
            name=name,
            seed=self.seed,
            bounds=Bounds(),
            fork_server=self.fork_server,
        )
        if isinstance(self.engine, SqliteEngine):
            clients.instruments.extend(self.engine.instruments)
        return clients

    def _strike(self, working: list[ClientProcess]) -> tuple[int, int]:
        """The fault; its instant, after which nothing counts, and what it dropped."""
        end = functools.partial(kill_all, working)
        if self.row.fault == "failover":
            return self._fail_over(working)
        if self.row.fault == "kill":
            if not isinstance(self.engine, SqliteEngine):
                cast("Killable", self.engine).kill()
            end()
            return time.monotonic_ns(), 0
        if isinstance(self.engine, SqliteEngine):
            evidence = self.engine.power_cut(end)
        else:
            evidence = cast("PowerCuttable", self.engine).power_cut()
            end()
        self.row.mechanism = str(evidence.facts["mechanism"])
        return int(evidence.facts["at_ns"]), int(evidence.facts["unsynced_bytes"])

    def _fail_over(self, working: list[ClientProcess]) -> tuple[int, int]:
        """The primary is lost with what it had not sent; nobody writes to the next one."""
        several = cast("Topology", self.engine)
        kill_all(working)
        at_ns = time.monotonic_ns()
        evidence = several.failover()
        several.heal()
        several.rejoin()
        return at_ns, int(evidence.facts["unreplicated_bytes"])

    def _look(
        self, clients: ClientPool, acked: list[Acked]
    ) -> tuple[dict[str, list[str]], str | None]:
        """What every session shows now; and why not, where it cannot be read any more."""
        try:
            self.engine.start()
        except EngineFailed as error:
            return {}, f"it does not start any more: {error}"
        script = [Step("history", session) for session in dict.fromkeys(a.session for a in acked)]
        readers = clients.start(scripts=[script], attempts=READ_ATTEMPTS)
        for reader in readers:
            reader.go()
            clients.until(lambda: not reader.alive, within_s=clients.bounds.recover_s)  # noqa: B023
            found = dict(_read(reader))
            missing = [step.session for step in script if step.session not in found]
            return found, _why(reader) if missing else None
        return {}, clients.trouble[0]


def _acked(clients: list[ClientProcess]) -> Iterator[Acked]:
    for client in clients:
        asked = {e["op"]: e for e in client.events if e["type"] == "invoke"}
        for event in client.events:
            if event["type"] == "ok":
                invoke = asked[event["op"]]
                yield Acked(invoke["session"], event["time_ns"], tuple(invoke["messages"]))


def _read(reader: ClientProcess) -> Iterator[tuple[str, list[str]]]:
    asked = {e["op"]: e for e in reader.events if e["type"] == "invoke"}
    for event in reader.events:
        if event["type"] == "ok":
            yield asked[event["op"]]["session"], event["messages"]


def _why(reader: ClientProcess) -> str:
    """Why not everything was read."""
    errors = [event["error"] for event in reader.events if "error" in event]
    return f"it cannot be read: {errors[-1]}" if errors else "it could not be read in time"
