"""The scenarios of a check, one small class each, in the order in which they are run."""

from holdfast.verify.scenarios.base import Bench, Outcome, Scenario
from holdfast.verify.scenarios.clients import DiskFull, KillClients, PauseClient
from holdfast.verify.scenarios.clock import ClockDrift, ClockExpiry
from holdfast.verify.scenarios.direct import Damage, OddContent, OddIds
from holdfast.verify.scenarios.disk import FailedRead, FailedSync
from holdfast.verify.scenarios.engine import (
    KillEngine,
    LostAck,
    NetworkCut,
    NoConnections,
    PauseEngine,
    RestartEngine,
)
from holdfast.verify.scenarios.load import Concurrency, Expiry, LateRetry

SCENARIOS: tuple[Scenario, ...] = (
    Concurrency(),
    OddContent(),
    OddIds(),
    Damage(),
    LateRetry(),
    KillClients(),
    PauseClient(),
    DiskFull(),
    FailedSync(),
    FailedRead(),
    KillEngine(),
    PauseEngine(),
    RestartEngine(),
    LostAck(),
    NetworkCut(),
    NoConnections(),
    Expiry(),
    ClockExpiry(),
    ClockDrift(),
)

__all__ = ["SCENARIOS", "Bench", "Outcome", "Scenario"]
