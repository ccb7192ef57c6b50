"""The scenarios of a check, one small class each, in the order in which they are run."""

from holdfast.verify.scenarios.base import Bench, Outcome, Scenario
from holdfast.verify.scenarios.clients import DiskFull, KillClients, PauseClient
from holdfast.verify.scenarios.direct import Damage, OddContent, OddIds
from holdfast.verify.scenarios.engine import (
    KillEngine,
    LostAck,
    NetworkCut,
    NoConnections,
    PauseEngine,
    RestartEngine,
)
from holdfast.verify.scenarios.load import Concurrency, Expiry, LateRetry
from holdfast.verify.scenarios.power import PowerCut

SCENARIOS: tuple[Scenario, ...] = (
    Concurrency(),
    OddContent(),
    OddIds(),
    Damage(),
    LateRetry(),
    KillClients(),
    PauseClient(),
    DiskFull(),
    KillEngine(),
    PowerCut(),
    PauseEngine(),
    RestartEngine(),
    LostAck(),
    NetworkCut(),
    NoConnections(),
    Expiry(),
)

__all__ = ["SCENARIOS", "Bench", "Outcome", "Scenario"]
