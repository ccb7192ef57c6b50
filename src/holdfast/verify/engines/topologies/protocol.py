"""What several engines that are one service can do besides: change their primary, be cut apart.

A topology is an `Engine` to everybody who only wants to write and read: it has one URL, which stays
good whichever member is primary. `isinstance(engine, Topology)` asks for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from holdfast.verify.engines.protocol import Engine
from holdfast.verify.proof import Evidence


@runtime_checkable
class Topology(Engine, Protocol):
    """Members of which one is the primary, or one of each shard.

    Each change of the primary returns its evidence, or raises `FaultNotProven`. Facts of `failover`
    and `switchover`: `before` and `after` (ports of the primaries), `epoch_before` and `epoch_after` (or
    the timelines), `seconds` until another member was primary, `unreplicated_bytes` of the old one.
    """

    topology: str
    """`sentinel`, `cluster`, `standby` or `patroni`."""

    @property
    def members(self) -> Sequence[Any]:
        """The engines that hold data, each with `port`, `kill`, `pause`, `resume`, `start`."""

    def primary(self) -> Any:
        """The member that takes writes now, by the word of most; of a cluster that of one shard.

        After each failover or switchover of a cluster it is that of the next shard.
        """

    def failover(self) -> Evidence:
        """SIGKILL the primary, and wait in bounded time until another member is primary."""

    def switchover(self) -> Evidence:
        """Make another member primary as an operator does, with the old one alive."""

    def rejoin(self) -> Evidence:
        """Start what is down and wait until every member follows the primary again."""

    def partition(self, member: Any, *, from_: str = "members", way: str = "both") -> Evidence:
        """Cut this member off: `members` (clients still reach it), `clients`, or `all`.

        One way, with Redis: `out` holds what it says, so it hears and is not heard, `in` what it is
        told. Nothing is refused and nothing closed: bytes do not arrive, as with a broken cable.
        `UsageError` where it was started without `partitions=True`.
        """

    def heal(self) -> Evidence:
        """Let all bytes pass again, those that were held first."""


@runtime_checkable
class Reshardable(Protocol):
    """Can move sessions from one primary to another while they are used."""

    def reshard(self, slots: int = 20) -> Evidence:
        """Move so many slots that have data. Facts: `slots`, `keys` moved, `before` and `after`."""


@runtime_checkable
class PromotedByHand(Protocol):
    """Has no coordinator: an operator makes another member primary."""

    def promote(self, old: Any) -> None:
        """Promote the member that has received most, whether the old primary lives or not."""
