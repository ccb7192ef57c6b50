"""What an audit found: findings, facts, what could not be seen, and what it is sound for. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from holdfast.model import Durability

EXIT_SOUND: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_UNSEEN: Final = 3


class Severity(enum.StrEnum):
    """How bad it is. A note is worth knowing and makes no setup unsound by itself."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


class Hazard(enum.StrEnum):
    """What may happen to a memory."""

    SIGKILL = "sigkill"
    """The engine's process ends at once."""
    POWER = "power"
    """The machine loses its power."""
    REPLACEMENT = "replacement"
    """The container, the pod or the machine is replaced by a new one."""
    FAILOVER = "failover"
    """A replica becomes the primary."""
    EVICTION = "eviction"
    """The engine throws data away to have room."""
    EXPIRY = "expiry"
    """A time to live ends too early, or for one part of a session only."""
    ORDER = "order"
    """A clock decides what was said first."""
    CONCURRENCY = "concurrency"
    """Two writers at once."""
    STALENESS = "staleness"
    """A read that does not show what was written before."""
    DAMAGE = "damage"
    """What is stored cannot be read."""


DECISIVE: Final = (Hazard.SIGKILL, Hazard.POWER)
"""Without these two, nothing was examined."""


class Soundness(enum.StrEnum):
    """Whether what was acknowledged survives a hazard, as the setup is now."""

    SOUND = "sound"
    UNSOUND = "unsound"
    UNKNOWN = "unknown"
    ABSENT = "does not apply"


_WORST: Final = (Soundness.ABSENT, Soundness.SOUND, Soundness.UNKNOWN, Soundness.UNSOUND)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what it costs, why, the setting as it is, and the exact change."""

    severity: Severity
    hazards: tuple[Hazard, ...]
    """What it makes this setup unsound for; none for a thing that is only worth knowing."""
    loses: str
    why: str
    now: str
    change: str
    commands: tuple[str, ...] = ()
    """The change as it is typed; `--fix` prints these and runs none of them."""
    line: int = 1
    """Of the file that it is about, where it is about one."""

    @property
    def counts(self) -> bool:
        """Whether it makes an audit fail."""
        return self.severity is not Severity.NOTE

    def sentence(self) -> str:
        """All of it, for an error message."""
        return f"{self.severity}: {self.loses}: {self.why} (now: {self.now}). {self.change}"

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "severity": self.severity.value,
            "hazards": [hazard.value for hazard in self.hazards],
            "loses": self.loses,
            "why": self.why,
            "now": self.now,
            "change": self.change,
            "commands": list(self.commands),
        }


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that changes from look to look; `of` says of what, where there are several."""

    name: str
    value: float
    of: str = ""


@dataclass(slots=True)
class Opinion:
    """What the rules of an engine make of what was seen."""

    findings: list[Finding] = field(default_factory=list)
    unknown: set[Hazard] = field(default_factory=set)
    """Hazards about which nothing could be seen."""
    absent: set[Hazard] = field(default_factory=set)
    """Hazards that this setup does not have."""

    def add(self, other: Opinion) -> None:
        """Take another opinion on the same setup into this one."""
        self.findings += other.findings
        self.unknown |= other.unknown
        self.absent |= other.absent

    def sound(self) -> dict[Hazard, Soundness]:
        """A hazard that a finding names is unsound, whatever else is not known of it."""
        unsound = {hazard for finding in self.findings for hazard in finding.hazards}
        return {hazard: self._of(hazard, unsound) for hazard in Hazard}

    def _of(self, hazard: Hazard, unsound: set[Hazard]) -> Soundness:
        if hazard in unsound:
            return Soundness.UNSOUND
        if hazard in self.unknown:
            return Soundness.UNKNOWN
        return Soundness.ABSENT if hazard in self.absent else Soundness.SOUND


@dataclass(frozen=True, slots=True)
class Audit:
    """The answer of one look at one setup. Nothing in it holds a password."""

    engine: str
    where: str
    findings: tuple[Finding, ...] = ()
    sound: Mapping[Hazard, Soundness] = field(
        default_factory=lambda: dict.fromkeys(Hazard, Soundness.UNKNOWN)
    )
    """What a plain writer can rely on; our own store may do better, see `ack_durability`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    ack_durability: Durability | None = None
    """What acks of holdfast's own store survive here; None where that cannot be seen."""
    topology: tuple[str, ...] = ()
    """Where several servers are one service: its members, a line each, and what a failover loses."""

    def with_more(self, other: Opinion, topology: Iterable[str] = ()) -> Audit:
        """The same with a further opinion on the whole: what it finds is unsound from then on."""
        unsound = {hazard for finding in other.findings for hazard in finding.hazards}
        worse = dict.fromkeys(unsound, Soundness.UNSOUND)
        return replace(
            self,
            findings=ordered((*self.findings, *other.findings)),
            sound={**self.sound, **worse},
            topology=(*self.topology, *topology),
        )

    @property
    def exit_code(self) -> int:
        """0 sound, 1 findings, 3 could not look at what decides."""
        if any(finding.counts for finding in self.findings):
            return EXIT_FINDINGS
        blind = any(self.sound[hazard] is Soundness.UNKNOWN for hazard in DECISIVE)
        return EXIT_UNSEEN if blind else EXIT_SOUND

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "engine": self.engine,
            "where": self.where,
            "exit_code": self.exit_code,
            "sound": {hazard.value: value.value for hazard, value in self.sound.items()},
            "holdfast_level": None if self.ack_durability is None else self.ack_durability.name,
            "findings": [finding.to_json() for finding in self.findings],
            "facts": dict(self.facts),
            "topology": list(self.topology),
            "unseen": list(self.unseen),
            "measures": [asdict(measure) for measure in self.measures],
        }


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; the same finding on several nodes stands once."""
    rank = list(Severity)
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: rank.index(finding.severity)))


def joined(audits: Sequence[Audit]) -> Audit:
    """Several looks at one setup as one: for each hazard the worst of them counts."""
    first, *others = audits
    if not others:
        return first
    levels = [audit.ack_durability for audit in audits if audit.ack_durability is not None]
    return Audit(
        engine=" + ".join(dict.fromkeys(audit.engine for audit in audits)),
        where=", ".join(dict.fromkeys(audit.where for audit in audits)),
        findings=ordered(finding for audit in audits for finding in audit.findings),
        sound={
            hazard: max((audit.sound[hazard] for audit in audits), key=_WORST.index)
            for hazard in Hazard
        },
        facts={f"{audit.where}: {n}": v for audit in audits for n, v in audit.facts.items()},
        unseen=tuple(dict.fromkeys(words for audit in audits for words in audit.unseen)),
        measures=tuple(measure for audit in audits for measure in audit.measures),
        ack_durability=min(levels, default=None),
        topology=tuple(line for audit in audits for line in audit.topology),
    )
