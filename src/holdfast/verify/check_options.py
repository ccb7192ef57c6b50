"""What to check, and how hard: the options of a check, and the command that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import UsageError, did_you_mean
from holdfast.model import Durability
from holdfast.secrets import SecretUrl
from holdfast.verify.promises import ALWAYS_JUDGED, PROMISES
from holdfast.verify.scenarios import SCENARIOS
from holdfast.verify.scenarios.base import OF_SEVERAL, Small
from holdfast.verify.workload.plan import ensure_operations

TIME_S: Final = 30.0
FAULTS: Final = tuple(dict.fromkeys(s.fault for s in SCENARIOS if s.fault is not None))
"""The faults that this release can cause, by the names of `--faults`."""
_SCENARIO_NAMES: Final = tuple(scenario.name for scenario in SCENARIOS)
_CLIENTS_MAX: Final = 16
_TIME_S_MIN: Final = 1.0
_TIME_S_MAX: Final = 1_000_000.0
_SCALE_MAX: Final = 20.0
LATE: Final = 4.0
"""A slow machine may take so many times as long as was meant; what is left then is unknown."""
LATE_OF_SEVERAL: Final = 2
"""Several engines get so much more of it: how soon another is primary is their coordinator's choice."""
LATE_S_MIN: Final = 60.0
"""And always so long: on a busy one, to start a few processes can take more than a short time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to check, and how hard."""

    target: str = field(default="sqlite", repr=False)
    config: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    seed: int = 0
    faults: tuple[str, ...] = ("all",)
    promises: tuple[str, ...] = PROMISES
    not_claimed: tuple[str, ...] = ()
    """Promises that this store does not make, beside those that its target does not claim."""
    time_s: float = TIME_S
    require: str | None = None
    """The level that every ack is held to; None is DISK, and REPLICA where there are several engines."""
    topology: str | None = None
    """Several engines that are one service, such as `sentinel`, instead of one engine."""
    scenario: str | None = None
    """This one alone, whatever its fault."""
    clients: int | None = None
    """So many at most; with `operations`, as many as meet in each session."""
    operations: tuple[str, ...] = ()
    """All that a client does in one session, such as `append:2,read`; then in the next."""
    all_configs: bool = False
    """Not one configuration and every promise, but every configuration and `durable`."""

    def __post_init__(self) -> None:
        if unknown := [p for p in (*self.promises, *self.not_claimed) if p not in PROMISES]:
            raise UsageError(
                f"no promise {unknown[0]!r}{did_you_mean(unknown[0], PROMISES)}; there are: {', '.join(PROMISES)}"
            )
        if judged := [p for p in self.not_claimed if p in ALWAYS_JUDGED]:
            raise UsageError(f"not claimed: {judged[0]} is always judged")
        if wrong := [f for f in self.faults if f not in (*FAULTS, "all", "none")]:
            raise UsageError(
                f"no fault {wrong[0]!r}{did_you_mean(wrong[0], FAULTS)}; there are: {_known()}"
            )
        if self.require is not None and self.require not in Durability.__members__:
            raise UsageError(
                f"require: no level {self.require!r}; {', '.join(Durability.__members__)}"
            )
        if self.scenario is not None and self.scenario not in _SCENARIO_NAMES:
            raise UsageError(
                f"no scenario {self.scenario!r}{did_you_mean(self.scenario, _SCENARIO_NAMES)}; "
                f"there are: {', '.join(_SCENARIO_NAMES)}"
            )
        try:
            ensure_operations(self.operations)
        except ValueError as error:
            raise UsageError(f"operations: {error}") from error
        if self.clients is not None and not 1 <= self.clients <= _CLIENTS_MAX:
            raise UsageError(f"clients: from 1 to {_CLIENTS_MAX}, not {self.clients}")
        if not _TIME_S_MIN <= self.time_s <= _TIME_S_MAX:
            raise UsageError(
                f"a check takes {_TIME_S_MIN:g} to {_TIME_S_MAX:,.0f} s, not {self.time_s!r}"
            )

    @property
    def required(self) -> Durability:
        """The level that every ack is held to."""
        return _required(self.topology) if self.require is None else Durability[self.require]

    @property
    def small(self) -> Small | None:
        """Fewer clients or operations than usual, where that was asked for."""
        if self.clients is None and not self.operations:
            return None
        return Small(self.clients or 1, self.operations)

    @property
    def wanted_faults(self) -> tuple[str, ...]:
        """Those to cause: all that can be on so many engines, or the named ones."""
        if self.scenario is not None:
            own = next(each.fault for each in SCENARIOS if each.name == self.scenario)
            return () if own is None else (own,)
        if "all" not in self.faults:
            return tuple(f for f in self.faults if f != "none")
        return tuple(f for f in FAULTS if self.topology or f not in OF_SEVERAL)

    @property
    def limit_s(self) -> float:
        """After that no scenario begins any more."""
        late = LATE * (LATE_OF_SEVERAL if self.topology else 1)
        return max(late * self.time_s, LATE_S_MIN)

    @property
    def scale(self) -> float:
        """How much of everything: 1 is the usual amount."""
        return min(self.time_s / TIME_S, _SCALE_MAX)

    @property
    def shown(self) -> str:
        """The target, without a password."""
        return str(SecretUrl(self.target))

    @property
    def command(self) -> str:
        """The command that makes the same plan again."""
        words = ["holdfast", "check", self.shown]
        for option, value in (
            ("--config", self.config),
            ("--engine", self.engine),
            ("--engine-version", self.engine_version),
            ("--faults", None if self.faults == ("all",) else ",".join(self.faults)),
            ("--promises", None if self.promises == PROMISES else ",".join(self.promises)),
            ("--not-claimed", ",".join(self.not_claimed) or None),
            ("--scenario", self.scenario),
            ("--clients", None if self.clients is None else str(self.clients)),
            ("--operations", ",".join(self.operations) or None),
            ("--topology", self.topology),
            ("--require", self.require if self.required is not _required(self.topology) else None),
            ("--time", None if self.time_s == TIME_S else f"{self.time_s:g}"),
            ("--seed", str(self.seed)),
        ):
            words += [] if value is None else [option, value]
        words += ["--all-configs"] if self.all_configs else []
        return shlex.join(words)


def _required(topology: str | None) -> Durability:
    """What is asked of a store unless somebody says otherwise."""
    return Durability.DISK if topology is None else Durability.REPLICA


def _known() -> str:
    return ", ".join((*FAULTS, "none", "all"))
