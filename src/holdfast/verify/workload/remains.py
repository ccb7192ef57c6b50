"""What a server may still do for a client that was killed, and from when on it will not.

Where the engine is in the client's own process, it dies with it: what was not done at waitpid
is never done, and that is when its operations are closed. A server is another process. It may
find the request of a dead client in its socket a second later, and carry it out; to close the
operation at waitpid would make a false alarm of that. To leave it open for ever is safe, and
misses what comes back too late, say after a forget.

So the server is asked. It gives up a connection only after it has carried out, or thrown away,
all that came over it: once it no longer lists any connection of the dead client, nothing is
left to be done. That holds only where the server knows the client's connections by the ports
that the client really has (no proxy or other server in between), so it must have listed all of
them before the kill; otherwise the operations stay open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.linux import connections, open_names
from holdfast.verify.engines.drivers import postgres_connection, redis_client
from holdfast.verify.process_tree import pause_tree, tree

_REDIS: Final = ("redis", "valkey")
_POSTGRES: Final = ("postgres", "postgresql")
_REPLY_TIMEOUT_S: Final = 1.0
"""A server that does not even say who is connected will not be waited for."""


@dataclass(frozen=True, slots=True)
class Remains:
    """The connections of a client that is about to be killed, by their ports on its side."""

    url: str
    ports: frozenset[int]

    def are_gone(self, served: set[int] | None) -> bool:
        """Whether a server that has these now has given up every one of them."""
        return self.ports.isdisjoint(served or self.ports)


def remains_of(client: int, url: str) -> Remains | None:
    """Stop a client and note its connections; None where the server does not tell of them all.

    It stays stopped: the caller is going to kill it.
    """
    pause_tree(client)
    ports = {port for pid in tree(client) for port in _ports_of(pid)}
    known = served_ports(url) if ports else None
    return Remains(url, frozenset(ports)) if known is not None and ports <= known else None


def served_ports(url: str) -> set[int] | None:
    """The ports of the clients that a server has; None where it cannot be asked."""
    scheme = urlsplit(url).scheme
    with contextlib.suppress(Exception):  # dead, full or of another kind: then nobody knows
        if scheme in _REDIS:
            with redis_client(url, reply_timeout_s=_REPLY_TIMEOUT_S) as client:
                listed: Any = client.client_list()
            return {int(each["addr"].rpartition(":")[2]) for each in listed}
        if scheme in _POSTGRES:
            asked = "SELECT client_port FROM pg_stat_activity WHERE client_port IS NOT NULL"
            with postgres_connection(url) as connection:
                return {port for (port,) in connection.execute(asked).fetchall()}
    return None


def _ports_of(pid: int) -> Iterator[int]:
    """Its own ports of all its TCP connections."""
    names = open_names(pid)
    return (one.port for one in connections(pid) if one.name in names and not one.listens)
