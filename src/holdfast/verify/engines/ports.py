"""Ports that stay ours: reserved machine-wide, kept over every restart of an engine."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

from holdfast.errors import EngineFailed

HOST: Final = "127.0.0.1"

PORTS: Final = range(10_000, 22_000)
"""Below the range from which the kernel takes ports for outgoing connections (32768 and up),
also with the 10,000 added that Redis Cluster uses for its bus: while an engine is down,
nobody's client can be given its port."""

_TRIES: Final = 200


class Port:
    """A port that no other run takes until `release`, although nothing listens on it yet.

    The reservation is an abstract Unix socket with the port in its name: the kernel gives a
    name to one process only and takes it back when that process dies.
    """

    def __init__(self, number: int, claims: list[socket.socket]) -> None:
        self.number = number
        self._claims = claims

    def release(self) -> None:
        """Let others have it."""
        for claim in self._claims:
            claim.close()


def reserve_port(also: int = 0) -> Port:
    """A free port of our own; with `also`, the port that many above it too."""
    for _ in range(_TRIES):
        number = random.choice(PORTS)  # noqa: S311 - not a secret
        wanted = [number, number + also] if also else [number]
        claims = [claim for each in wanted if (claim := _claim(each))]
        if len(claims) == len(wanted) and all(is_free(each) for each in wanted):
            return Port(number, claims)
        for claim in claims:
            claim.close()
    raise EngineFailed(
        f"no free port on {HOST} in {_TRIES} tries between {PORTS[0]} and {PORTS[-1]}"
    )


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def _claim(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0holdfast-port-{port}")
    except OSError:
        claim.close()
        return None
    return claim
