"""The durability card: what each configuration lost, by fault. Pure: counts in, verdict out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.model import Durability
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult, FaultTally, Finding, combine, overall

SURVIVES: Final[Mapping[str, Durability]] = {
    "kill": Durability.PROCESS,
    "power": Durability.DISK,
    "failover": Durability.REPLICA,
}
"""The level at which an ack survives the fault."""
HELD_S: Final = 0.2
"""So long the log does not reach the others before a failover: on loopback it is with them in
microseconds, between machines it is late by the network's time, or more under load."""


@dataclass(frozen=True, slots=True)
class Acked:
    """An append that was acknowledged: where, when, and what was in it."""

    session: str
    time_ns: int
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """One fault: how many acknowledged appends were gone after it."""

    acknowledged: int
    lost: int
    window_ms: float = 0.0
    """From the oldest ack that was lost to the fault; 0 where none was."""
    halved: int = 0
    """Sessions of which some acknowledged appends are there and others are not."""
    torn: int = 0
    """Acknowledged appends of which a part is there."""
    unsynced_bytes: int = 0
    trouble: str | None = None
    """Why nothing can be read any more: then everything counts as lost."""


def loss_of(
    acked: Iterable[Acked],
    found: Mapping[str, Iterable[str]],
    at_ns: int,
    *,
    unsynced_bytes: int = 0,
    trouble: str | None = None,
) -> Loss:
    """Compare what was acknowledged before the fault with what is there after it."""
    every = [one for one in acked if one.time_ns <= at_ns]
    there = {session: set(messages) for session, messages in found.items()}
    nothing: set[str] = set()
    gone = [one for one in every if not there.get(one.session, nothing).issuperset(one.messages)]
    lost = {id(one) for one in gone}
    kept_in = {one.session for one in every if id(one) not in lost}
    return Loss(
        acknowledged=len(every),
        lost=len(gone),
        window_ms=max(((at_ns - one.time_ns) / 1e6 for one in gone), default=0.0),
        halved=len(kept_in & {one.session for one in gone}),
        torn=sum(bool(there.get(one.session, nothing) & set(one.messages)) for one in gone),
        unsynced_bytes=unsynced_bytes,
        trouble=trouble,
    )


@dataclass(slots=True)
class Row:
    """One configuration under one fault."""

    config: str
    fault: str
    level: str | None = None
    """What its acks say that they survive."""
    mechanism: str = ""
    losses: list[Loss] = field(default_factory=list)
    not_run: str | None = None

    @property
    def acknowledged(self) -> int:
        """By all rounds."""
        return sum(loss.acknowledged for loss in self.losses)

    @property
    def lost(self) -> int:
        """By all rounds."""
        return sum(loss.lost for loss in self.losses)

    @property
    def losing(self) -> int:
        """How many of the faults lost something."""
        return sum(loss.lost > 0 for loss in self.losses)

    @property
    def window_ms(self) -> float:
        """The longest."""
        return max((loss.window_ms for loss in self.losses), default=0.0)

    def verdict(self, require: Durability) -> Verdict:
        """Broken where an ack was lost that had to survive; unknown where nothing was caused."""
        if require < SURVIVES[self.fault]:
            return Verdict.NOT_CLAIMED
        if self.lost:
            return Verdict.BROKEN
        return Verdict.KEPT if self.acknowledged and self.not_run is None else Verdict.UNKNOWN

    def finding(self, require: Durability) -> Finding | None:
        """What it says of `durable`; nothing where an ack is not held to surviving the fault."""
        verdict = self.verdict(require)
        if verdict is Verdict.NOT_CLAIMED:
            return None
        words = f"{self.config}, {self.fault}: {self.lost} of {self.acknowledged} acks were lost"
        return Finding("durable", verdict, self.not_run or words, f"{self.config}, {self.fault}")

    def to_json(self, require: Durability) -> dict[str, Any]:
        """For machines."""
        totals = {name: getattr(self, name) for name in ("acknowledged", "lost", "losing")}
        window_ms = round(self.window_ms, 1)
        verdict = str(self.verdict(require))
        return {**asdict(self), **totals, "window_ms": window_ms, "verdict": verdict}


def card_of(
    target: str,
    seed: int,
    require: Durability,
    rows: Sequence[Row],
    environment: Mapping[str, Any],
    repeat: str,
) -> CheckResult:
    """The result of a check of every configuration: `durable` alone, as bad as the worst row."""
    findings = [finding for row in rows if (finding := row.finding(require))]
    promises = combine(["durable"], {}, findings)
    faults: dict[str, FaultTally] = {}
    for row in rows:
        tally = faults.setdefault(row.fault, FaultTally(not_run=row.not_run))
        tally.landed += len(row.losses)
    acknowledged, lost = sum(row.acknowledged for row in rows), sum(row.lost for row in rows)
    return CheckResult(
        target,
        seed,
        overall(promises),
        promises,
        faults,
        {"acknowledged": acknowledged, "read_back": acknowledged - lost, "lost": lost},
        environment,
        repeat,
        require.name,
        tuple(row.to_json(require) for row in rows),
    )
