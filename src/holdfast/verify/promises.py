"""The twelve promises: id, sentence and order, written down once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. `kept` is what a check says where it was kept."""

    id: str
    sentence: str
    kept: str
    always_judged: bool = False
    """A memory that does not claim it is none: it is judged whatever is declared."""


TABLE: Final = (
    Promise(
        "durable",
        "What was acknowledged survives.",
        "what was acknowledged was found again",
        always_judged=True,
    ),
    Promise(
        "ordered",
        "Messages stand in the order in which they were written.",
        "no read contradicts the order of the acks",
        always_judged=True,
    ),
    Promise(
        "atomic",
        "A turn is all there or all gone, never half.",
        "no batch was ever seen in part",
        always_judged=True,
    ),
    Promise("exactly-once", "A retry adds nothing.", "no retry added anything"),
    Promise(
        "fresh",
        "Whoever reads after the ack sees the write.",
        "every read showed what was acknowledged before it",
    ),
    Promise(
        "snapshot",
        "One read is one consistent cut.",
        "every read was one consistent cut",
    ),
    Promise(
        "isolated",
        "Sessions never leak into one another.",
        "no session showed another's messages",
        always_judged=True,
    ),
    Promise(
        "faithful",
        "What comes back is exactly what went in.",
        "what went in came out",
        always_judged=True,
    ),
    Promise(
        "expiring",
        "A session expires as a whole, at its time.",
        "sessions lived as long as they should, and no longer",
    ),
    Promise("forgotten", "What was deleted never comes back.", "nothing came back"),
    Promise(
        "loud",
        "Every failure is an error that says so.",
        "every failure was an error that says so",
        always_judged=True,
    ),
    Promise(
        "recallable",
        "Whatever is in the log can be found by meaning.",
        "what is in the log was found",
    ),
)
"""In the order in which they are shown everywhere."""

BY_ID: Final = {promise.id: promise for promise in TABLE}
PROMISES: Final = tuple(BY_ID)
"""Their ids."""
ALWAYS_JUDGED: Final = frozenset(promise.id for promise in TABLE if promise.always_judged)
