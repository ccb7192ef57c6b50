"""Real engines on this machine: find them, start them, end them, bring them back."""

from holdfast.verify.engines.options import KINDS, EngineOptions, Found
from holdfast.verify.engines.protocol import (
    Clocked,
    Engine,
    Killable,
    Namespaced,
    Pausable,
    PowerCuttable,
    Replicable,
    ReplicaEngine,
    Restartable,
)
from holdfast.verify.engines.providers import PROVIDERS, find_engines, open_engine, start_engine
from holdfast.verify.engines.topologies.protocol import Reshardable, Topology
from holdfast.verify.proof import Evidence

__all__ = [
    "KINDS",
    "PROVIDERS",
    "Clocked",
    "Engine",
    "EngineOptions",
    "Evidence",
    "Found",
    "Killable",
    "Namespaced",
    "Pausable",
    "PowerCuttable",
    "ReplicaEngine",
    "Replicable",
    "Reshardable",
    "Restartable",
    "Topology",
    "find_engines",
    "open_engine",
    "start_engine",
]
