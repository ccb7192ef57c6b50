"""The scenarios of a check, one small class each, in the order in which they are run."""

from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.change import RestartOtherwise, Upgrade
from holdfast.verify.scenarios.clients import KillClients, PauseClient
from holdfast.verify.scenarios.crash_at_line import CrashAtLine
from holdfast.verify.scenarios.direct import Damage, OddContent, OddIds, OldRecords
from holdfast.verify.scenarios.engine_faults import (
    KillEngine,
    NetworkCut,
    NoConnections,
    PauseEngine,
    RestartEngine,
)
from holdfast.verify.scenarios.engine_lines import EngineAtLine
from holdfast.verify.scenarios.expiry_lines import ExpiryAtLine
from holdfast.verify.scenarios.explore import PowerExplore
from holdfast.verify.scenarios.failing_disk import FailedRead, FailedSync
from holdfast.verify.scenarios.failover import (
    Failover,
    Partition,
    PartitionOneWay,
    PausePrimary,
    Reshard,
    Switchover,
)
from holdfast.verify.scenarios.full_disk import DiskFull, EngineDiskFull
from holdfast.verify.scenarios.held_lines import HeldAtLine
from holdfast.verify.scenarios.load import Concurrency, Expiry, LateRetry, LongSession
from holdfast.verify.scenarios.lost_ack import LostAck
from holdfast.verify.scenarios.moved_clock import ClockDrift, ClockExpiry
from holdfast.verify.scenarios.power import PowerCut
from holdfast.verify.scenarios.power_lines import PowerAtLine
from holdfast.verify.scenarios.recall import Recall, RecallAfterKill
from holdfast.verify.scenarios.summary_crashes import SummaryAtLine
from holdfast.verify.scenarios.tool_turns import ToolTurns

SCENARIOS: tuple[Scenario, ...] = (
    Concurrency(),
    OddContent(),
    OddIds(),
    OldRecords(),
    LongSession(),
    LateRetry(),
    ToolTurns(),
    Recall(),
    RecallAfterKill(),
    KillClients(),
    PauseClient(),
    DiskFull(),
    KillEngine(),
    Failover(),
    Switchover(),
    Partition(),
    PartitionOneWay(),
    PausePrimary(),
    Reshard(),
    PowerCut(),
    PauseEngine(),
    HeldAtLine(),
    RestartEngine(),
    RestartOtherwise(),
    Upgrade(),
    LostAck(),
    NetworkCut(),
    NoConnections(),
    Expiry(),
    FailedSync(),  # with those of the clock, run while the ones before them wait
    FailedRead(),
    EngineDiskFull(),  # after every other of its fault: why it was not caused is what people need to know
    ClockExpiry(),
    ClockDrift(),
    PowerExplore(),
    EngineAtLine(),
    PowerAtLine(),
    SummaryAtLine(),
    ExpiryAtLine(),
    CrashAtLine(),
    Damage(),  # the last: where it has no engine of its own, others would meet what it left
)

__all__ = [
    "SCENARIOS",
    "CrashAtLine",
    "EngineAtLine",
    "Outcome",
    "PowerAtLine",
    "Scenario",
    "ScenarioContext",
]
