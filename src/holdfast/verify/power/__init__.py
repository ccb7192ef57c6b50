"""Power cuts: what was not on the disk is gone. Three mechanisms behind one verb."""

from __future__ import annotations

import importlib
from typing import Final, cast

from holdfast.errors import UsageError, VerifyError
from holdfast.verify.power.supply import Supply

MECHANISMS: Final = {
    "block": "holdfast.verify.power.block:BlockSupply",
    "trace": "holdfast.verify.power.trace:TraceSupply",
    "shim": "holdfast.verify.power.shim:ShimSupply",
}
"""The most faithful first: name -> the class that is it, imported when it is asked for."""
BEST: Final = "best"


def open_supply(mechanism: str | None = None) -> Supply:
    """The power of a new directory, by the named mechanism or by the best that works here.

    `VerifyError` says why none does. A SIGKILL, which loses nothing that the kernel has, never
    stands in for it.
    """
    if mechanism not in (None, BEST):
        return _open(str(mechanism))
    reasons = []
    for name in MECHANISMS:
        try:
            return _open(name)
        except VerifyError as error:
            reasons.append(f"{name}: {error}")
    raise VerifyError(f"the power cannot be cut on this machine. {'; '.join(reasons)}")


def _open(mechanism: str) -> Supply:
    if mechanism not in MECHANISMS:
        known = ", ".join((BEST, *MECHANISMS))
        raise UsageError(f"no way {mechanism!r} to cut the power; there are: {known}")
    place, _, name = MECHANISMS[mechanism].partition(":")
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise VerifyError(f"this release cannot cut the power by {mechanism}") from error
    return cast("Supply", getattr(module, name)())


__all__ = ["BEST", "MECHANISMS", "Supply", "open_supply"]
