"""The kit: holds any memory store to the promises, on real engines, under real faults."""

from holdfast.verify.claims import Claims, NotClaimed
from holdfast.verify.target import Index, Target

__all__ = ["Claims", "Index", "NotClaimed", "Target"]
