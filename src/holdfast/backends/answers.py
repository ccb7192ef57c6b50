"""Answers of an engine that nothing of ours can have caused: another program was at its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from holdfast.errors import Damaged, HoldfastError

P = ParamSpec("P")
R = TypeVar("R")
NONSENSE: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def understood(backend: str, read: Callable[P, R], *answer: P.args, **more: P.kwargs) -> R:
    """What `read` makes of an answer; `Damaged` where nothing can be made of it."""
    try:
        return read(*answer, **more)
    except HoldfastError:  # some are a ValueError too
        raise
    except NONSENSE as error:
        raise Damaged(
            f"the engine's answer cannot be understood ({error!r}): what it keeps of the session is "
            "not what was written, another program changed it. A read changed nothing; what a write did is "
            "not known",
            backend=backend,
        ) from error
