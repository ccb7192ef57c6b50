"""Power cuts: what was not on the disk is gone. Three mechanisms behind one verb."""

from holdfast.verify.faults.power.supply import Supply

__all__ = ["Supply"]
