"""Histories that a framework wrote into its own store, brought over and proven to be there."""

from holdfast.integrations.migration.move import Difference, LeftOut, Moved, migrate
from holdfast.integrations.migration.sources import KINDS

__all__ = ["KINDS", "Difference", "LeftOut", "Moved", "migrate"]
