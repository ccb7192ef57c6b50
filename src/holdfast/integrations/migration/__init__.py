"""Histories that a framework wrote into its own store, brought over and proven to be there."""

from holdfast.integrations.migration.found import Difference, LeftOut, Moved
from holdfast.integrations.migration.move import migrate
from holdfast.integrations.migration.sources import CHECKPOINTERS, KINDS

__all__ = ["CHECKPOINTERS", "KINDS", "Difference", "LeftOut", "Moved", "migrate"]
