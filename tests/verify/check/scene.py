"""One scenario on one target, without the rest of a check: for those that bring their own engine."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.verify.engines import Engine
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.options import DEFAULT_CONFIG
from holdfast.verify.result import FaultTally, Finding
from holdfast.verify.scenarios import Scenario, ScenarioContext
from holdfast.verify.spec import EngineView, TargetSpec, load_target, view_of
from holdfast.verify.workload.client_pool import Bounds
from holdfast.verify.workload.fork_server import open_fork_server

DRIVERS = {"sqlite": ["apsw"], "redis": ["redis.asyncio"], "postgres": ["psycopg"]}


class Played:
    """What a scenario found: findings by promise, worst first, and what landed."""

    def __init__(self, findings: list[Finding], tallies: dict[str, FaultTally]) -> None:
        self.findings = findings
        self.tallies = tallies

    def of(self, promise: str) -> Finding:
        found = [finding for finding in self.findings if finding.promise == promise]
        worst = ("broken", "unknown", "kept")
        assert found, f"nothing was said of {promise}: {self.findings}"
        return min(found, key=lambda finding: worst.index(str(finding.verdict)))


def play(
    scenario: Scenario,
    name: str,
    kind: str,
    *,
    scale: float = 0.5,
    level: str | None = None,
    config: str | None = None,
    named: tuple[str, ...] = (),
    engine: Engine | None = None,
) -> Played:
    """Without an engine, only a scenario that starts its own can be played."""
    version = choose_binary(kind, None).version
    config = config or DEFAULT_CONFIG[kind]
    url = "sqlite:///nowhere" if kind == "sqlite" else "redis://127.0.0.1:1/0"
    view = EngineView(kind, "local", config, url, version, None)
    spec = TargetSpec(name, engine=view_of(engine) if engine else view)
    target = load_target(spec)
    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as folder:
        context = ScenarioContext(
            spec=spec,
            engine=engine,
            seed=3,
            folder=Path(folder),
            bounds=Bounds(),
            scale=scale,
            about={
                "name": name,
                "keyed": False,
                "summarizes": True,
                "level": level,
                "ttl_s": target.ttl_s,
                "not_claimed": dict(target.claims.not_claimed()),
            },
            say=lambda _: None,
            named=named,
        )
        assert scenario.reason_not(context) is None
        with forking(context, name, kind):
            outcome = scenario.run(context)
        return Played(outcome.findings, context.tallies)


@contextlib.contextmanager
def forking(context: ScenarioContext, name: str, kind: str) -> Iterator[None]:
    """Clients are forked, as in a check; what starts an engine of its own puts them under instruments."""
    needed = [name.partition(":")[0], "holdfast.verify.workload.jobs", *DRIVERS[kind]]
    if context.engine is not None:
        context.fork_server = open_fork_server(needed, context.folder)
    with context.fork_server or contextlib.nullcontext():
        yield
