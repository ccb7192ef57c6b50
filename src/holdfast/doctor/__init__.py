"""Read-only audits: what would this setup lose, why, and which setting changes that."""

from holdfast.doctor.finding import Audit, Finding, Hazard, Severity, Soundness
from holdfast.doctor.look import assert_sound, audit
from holdfast.doctor.sound import sound_for

__all__ = [
    "Audit",
    "Finding",
    "Hazard",
    "Severity",
    "Soundness",
    "assert_sound",
    "audit",
    "sound_for",
]
