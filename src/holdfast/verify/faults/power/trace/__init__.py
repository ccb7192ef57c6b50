"""Power cuts by replay: system calls are recorded, and any crash state is built from them."""

from holdfast.verify.faults.power.trace.disk import Crash, Disk, Loss
from holdfast.verify.faults.power.trace.place import build
from holdfast.verify.faults.power.trace.recorder import Recorder, Recording
from holdfast.verify.faults.power.trace.supply import TraceSupply

__all__ = ["Crash", "Disk", "Loss", "Recorder", "Recording", "TraceSupply", "build"]
