"""Faults, each of which proves that it landed: it returns `Evidence` or raises `FaultNotProven`."""

from holdfast.linux import users_of
from holdfast.verify.clock import Clock
from holdfast.verify.faults.crash import CrashAt, crash_at
from holdfast.verify.faults.data_directory import MovedAway, ReadOnly
from holdfast.verify.faults.disk_space import FileSizeLimit, SmallDisk, disk_of
from holdfast.verify.faults.engine import kill, paused, reconfigure
from holdfast.verify.faults.faulty import FaultyDisk
from holdfast.verify.faults.pressure import ConnectionsHeld, MemoryLimit
from holdfast.verify.faults.proxy import Proxy
from holdfast.verify.faults.proxy_links import Armed
from holdfast.verify.process_tree import kill_tree, pause_tree, resume_tree, tree
from holdfast.verify.proof import Evidence

__all__ = [
    "Armed",
    "Clock",
    "ConnectionsHeld",
    "CrashAt",
    "Evidence",
    "FaultyDisk",
    "FileSizeLimit",
    "MemoryLimit",
    "MovedAway",
    "Proxy",
    "ReadOnly",
    "SmallDisk",
    "crash_at",
    "disk_of",
    "kill",
    "kill_tree",
    "pause_tree",
    "paused",
    "reconfigure",
    "resume_tree",
    "tree",
    "users_of",
]
