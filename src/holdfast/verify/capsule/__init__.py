"""Capsules: what a release wrote, kept to be read back by every later one.

A capsule is a small directory fit for git: `capsule.json` says who wrote it on which engine and
what must be read back, and beside it is what was written, as the engine's own files, as an SQL
dump, or as an export.
"""

from holdfast.verify.capsule.differences import Difference
from holdfast.verify.capsule.kept import Capsule
from holdfast.verify.capsule.work import Origin, Report, Today, create, verify, worst

__all__ = ["Capsule", "Difference", "Origin", "Report", "Today", "create", "verify", "worst"]
