"""Power cuts by replay: system calls are recorded, and any crash state is built from them."""

from holdfast.verify.power.trace.crash_state import build
from holdfast.verify.power.trace.disk_model import Crash, Disk, Loss
from holdfast.verify.power.trace.recorder import Recorder, Recording
from holdfast.verify.power.trace.replayed_supply import TraceSupply

__all__ = ["Crash", "Disk", "Loss", "Recorder", "Recording", "TraceSupply", "build"]
