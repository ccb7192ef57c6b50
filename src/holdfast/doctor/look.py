"""From a target to its audit: one look, read only, within a bound of time."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from holdfast import limits, operations
from holdfast.connection import BACKENDS, scheme_of
from holdfast.doctor.budget import TIME_S, Budget
from holdfast.doctor.finding import DECISIVE, Audit, Hazard, Soundness
from holdfast.errors import HoldfastError, UsageError, VerifyError, did_you_mean
from holdfast.secrets import SecretUrl

_ROOM: Final = "holdfast.doctor"  # cycle: only how the names of others begin
_AUDITS: Final = {
    **{
        scheme: (f"{_ROOM}.ask_{backend.rpartition('.')[2]}", requirement)
        for scheme, (backend, requirement) in BACKENDS.items()
    },
    **dict.fromkeys(("chroma", "http", "https"), (f"{_ROOM}.ask_chroma", "holdfast")),
}
"""URL scheme -> the module that looks, and what to install for its driver."""


def audit(target: str, *, namespace: str = "default", time_s: float = TIME_S) -> Audit:
    """What this store or engine would lose as it is configured now. It writes nothing.

    An engine that does not answer is an audit of which everything is unknown; a target that
    cannot be understood is a `UsageError`.
    """
    scheme = scheme_of(target)
    space = operations.text_bytes(namespace, "namespace", limits.NAMESPACE_BYTES_MAX)
    look = _look_for(scheme)
    try:
        found: Audit = look(target, space, Budget(time_s))
    except UsageError:
        raise
    except HoldfastError as error:
        return Audit(scheme, str(SecretUrl(target)), unseen=(str(error),))
    except Exception as error:
        raise VerifyError(
            f"the doctor itself failed ({type(error).__name__}: {error}); this says nothing about "
            "the target",
            operation="doctor",
        ) from error
    return found


def assert_sound(
    target: str,
    *,
    hazards: Sequence[Hazard | str] = DECISIVE,
    namespace: str = "default",
    time_s: float = TIME_S,
) -> Audit:
    """Raise `AssertionError`, in whole sentences, unless the target is sound; return its audit.

    A finding that counts is one reason, a hazard of these that could not be judged another.
    """
    found = audit(target, namespace=namespace, time_s=time_s)
    wrong = [finding.sentence() for finding in found.findings if finding.counts]
    blind = [
        f"unknown: whether it survives {Hazard(hazard).value} could not be seen "
        f"({'; '.join(found.unseen) or 'the target does not say'})"
        for hazard in hazards
        if found.sound[Hazard(hazard)] is Soundness.UNKNOWN
    ]
    if wrong or blind:
        lines = "\n- ".join([f"{found.engine} at {found.where} is not sound:", *wrong, *blind])
        raise AssertionError(lines)
    return found


def _look_for(scheme: str) -> Any:
    if scheme not in _AUDITS:
        raise UsageError(
            f"no audit for {scheme + '://' if scheme else 'a target without a scheme'}"
            f"{did_you_mean(scheme, _AUDITS)}; known are: "
            f"{', '.join(f'{name}://' for name in sorted(_AUDITS))}, and --manifest FILE"
        )
    module, requirement = _AUDITS[scheme]
    try:
        return importlib.import_module(module).look
    except ImportError as error:
        raise UsageError(
            f"{scheme}:// needs a driver that is not installed ({error}). "
            f"Run: pip install '{requirement}'"
        ) from error
