"""What steps ask for: a statement sent to a server, or a little time. Pure, for both APIs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.backends.postgres.errors import ConnectionLost, Contended
from holdfast.backends.postgres.statements import Rows, Statement
from holdfast.runner import StepsOf

R = TypeVar("R")

TRIES_MAX: Final = 8
REST_S: Final = 0.002


@dataclass(slots=True)
class Ask:
    """Send a statement to a server: `PRIMARY`, or a replica by its index."""

    server: int
    statement: Statement


@dataclass(slots=True)
class Rest:
    """Wait a little."""

    seconds: float


Steps = StepsOf[Ask | Rest, R]


def ask(server: int, statement: Statement) -> Steps[Rows]:
    """Ask, and again where that is safe: the server gave up, or a read lost its connection."""
    for tried in range(1, TRIES_MAX):
        try:
            rows: Rows = yield Ask(server, statement)
        except (Contended, ConnectionLost) as error:
            if isinstance(error, ConnectionLost) and tried > 1:
                raise
            yield Rest(random.uniform(0, REST_S * 2**tried))  # noqa: S311 - only to get apart
        else:
            return rows
    last: Rows = yield Ask(server, statement)
    return last
