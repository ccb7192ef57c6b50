"""Power cuts by replay: system calls are recorded, and any crash state is built from them."""

from holdfast.verify.power.trace.disk import Crash, Disk, Loss
from holdfast.verify.power.trace.place import build
from holdfast.verify.power.trace.recorder import Recorder, Recording
from holdfast.verify.power.trace.supply import TraceSupply

__all__ = ["Crash", "Disk", "Loss", "Recorder", "Recording", "TraceSupply", "build"]
