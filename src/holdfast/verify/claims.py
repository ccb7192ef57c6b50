"""Which promises a store claims. Declared by the store's author, never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from holdfast.errors import UsageError
from holdfast.verify.promises import ALWAYS_JUDGED, PROMISES


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """A promise that is not made, and the `reason`. It is printed, and never counts as kept."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise UsageError("NotClaimed needs a reason: it is printed in the scorecard")


Claim = bool | NotClaimed


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """One field a promise, `exactly_once` for `exactly-once`. Whatever is not named is claimed.

    A field is True or `NotClaimed(why)`. `exactly_once`, `fresh`, `snapshot`, `expiring`, `forgotten` and
    `recallable` may be declined. `durable`, `ordered`, `atomic`, `isolated`, `faithful` and `loud` are
    always judged: to decline one of these is a `UsageError`.
    """

    durable: Claim = True
    ordered: Claim = True
    atomic: Claim = True
    exactly_once: Claim = True
    fresh: Claim = True
    snapshot: Claim = True
    isolated: Claim = True
    faithful: Claim = True
    expiring: Claim = True
    forgotten: Claim = True
    loud: Claim = True
    recallable: Claim = True

    def __post_init__(self) -> None:
        for promise in PROMISES:
            claim = self.of(promise)
            if claim is not True and not isinstance(claim, NotClaimed):
                raise UsageError(f"{promise}: claim it with True, or say NotClaimed(why)")
            if claim is not True and promise in ALWAYS_JUDGED:
                raise UsageError(f"{promise} is always judged: a memory without it is none")

    def of(self, promise: str) -> Claim:
        """The claim on a promise, by its id."""
        claim: Claim = getattr(self, promise.replace("-", "_"))
        return claim

    def claimed(self) -> list[str]:
        """The ids of the promises that are claimed, in the order of the table."""
        return [promise for promise in PROMISES if self.of(promise) is True]

    def not_claimed(self) -> Iterator[tuple[str, str]]:
        """(id, reason) of the others."""
        for promise in PROMISES:
            claim = self.of(promise)
            if isinstance(claim, NotClaimed):
                yield promise, claim.reason


assert [field.name.replace("_", "-") for field in fields(Claims)] == list(PROMISES)  # noqa: S101
