"""`holdfast doctor`: what was asked for, and the exit code of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast import terminal
from holdfast.doctor import report
from holdfast.doctor.finding import Audit, joined
from holdfast.doctor.look import audit
from holdfast.errors import UsageError
from holdfast.secrets import SecretUrl


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of the command."""

    target: SecretUrl | None
    manifest: Path | None
    namespace: str
    time_s: float
    fix: bool
    watch: bool
    canary: bool
    every_s: float
    metrics: int | None
    rounds: int | None
    json_to: Path | None
    sarif: Path | None = None


def run(asked: Asked) -> int:
    """Look once, or watch; the exit code."""
    if asked.target is None and asked.manifest is None:
        raise UsageError(
            "nothing to look at: name a target such as redis://localhost, or --manifest"
        )
    if asked.sarif is not None:
        if asked.manifest is None or asked.watch:
            raise UsageError("--sarif goes with --manifest: its findings are about a file")
        terminal.ensure_writable(asked.sarif)
    if asked.watch:
        return _watch(asked)
    if asked.canary or asked.metrics is not None or asked.rounds is not None:
        raise UsageError("--canary, --metrics and --rounds go with --watch")
    found = _look(asked)
    terminal.write_json(found.to_json(), asked.json_to)
    if asked.sarif is not None and asked.manifest is not None:
        from holdfast.doctor.manifest import look_at  # noqa: PLC0415 - rarely needed
        from holdfast.doctor.sarif import sarif  # noqa: PLC0415

        terminal.write_json(sarif(look_at(asked.manifest), asked.manifest), asked.sarif)
    if asked.json_to != terminal.STDOUT:
        (report.show_commands if asked.fix else report.show)(found)
    return found.exit_code


def _look(asked: Asked) -> Audit:
    looks: list[Audit] = []
    if asked.target is not None:
        looks.append(audit(asked.target.reveal(), namespace=asked.namespace, time_s=asked.time_s))
    if asked.manifest is not None:
        from holdfast.doctor.manifest import look_at  # noqa: PLC0415 - rarely needed

        looks.append(look_at(asked.manifest))
    return joined(looks)


def _watch(asked: Asked) -> int:
    from holdfast.doctor.watching import WatchOptions, watch  # noqa: PLC0415 - rarely needed

    if asked.target is None or asked.manifest is not None or asked.fix or asked.json_to:
        raise UsageError("--watch needs a target, and goes without --manifest, --fix and --json")
    return watch(
        WatchOptions(
            target=asked.target,
            namespace=asked.namespace,
            canary=asked.canary,
            every_s=asked.every_s,
            time_s=asked.time_s,
            port=asked.metrics,
            rounds=asked.rounds,
        )
    )
