"""Which server of a URL is the primary, and the latest timeline that anybody has seen. Pure.

Each promotion begins a timeline of the log, with a number one higher. So of two servers that
both say that they are primary, the one on the earlier timeline was deposed, and what it
acknowledges will be lost.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Final

from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.errors import BACKEND, Locked
from holdfast.errors import EngineUnreachable, HoldfastError, Refused, UsageError
from holdfast.runner import StepsOf

REST_S: Final = 0.05
"""Between two looks at servers of which none is primary yet."""
SUSPECT_S: Final = 1.0
"""So often at most, a token that names a later timeline has all servers looked at again."""
AT_ONCE: Final = frozenset({"connect", "position", "sweep", "expire"})
"""Operations that wait for no failover: a caller waits for more than them."""

_POSITION: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})(?:@([0-9]{1,10}))?")
"""A place in the log, and its timeline, which earlier tokens do not have."""

Position = tuple[int, int]
"""A place in the log: its timeline, and there its number. A later timeline is later everywhere."""


@dataclass(slots=True)
class Try:
    """Open a connection with these settings; it then has `position`, or None for a standby."""

    conninfo: dict[str, Any]


@dataclass(slots=True)
class Drop:
    """Close a connection that nobody wants."""

    link: Any


@dataclass(slots=True)
class Rest:
    """Wait a little."""

    seconds: float


class Hosts:
    """The servers that one URL names: for writes, the primary among them."""

    def __init__(self, address: Address, *, replica: bool = False) -> None:
        self.address = address
        self.members = [address.conninfo] if replica else address.members
        self.is_replica = replica
        """A replica is read from, whatever its timeline: each read checks that."""
        self.timeline = 0
        """The latest that was seen; what is on an earlier one was deposed."""
        self.began: Position = (0, 0)
        """Where the primary was when it was found on this timeline."""
        self.system: str | None = None
        """The database cluster that all members are copies of, as soon as one has said it."""
        self._at = 0
        self._in_doubt = True
        self._suspected_s = -SUSPECT_S

    @property
    def failover_timeout_s(self) -> float:
        """How long a command waits for another primary: where the URL names one server, not at all."""
        return self.address.failover_timeout_s if len(self.members) > 1 else 0.0

    def see(self, timeline: int) -> None:
        """A server of ours is on this timeline: none on an earlier one is believed any more."""
        if timeline > self.timeline:
            self.timeline = timeline
            self._in_doubt = True

    def suspect(self, timeline: int) -> None:
        """A caller says that there is such a timeline: look again, with connections of now.

        His word alone changes nothing: a token may be of another cluster, or made up.
        """
        if timeline > self.timeline and time.monotonic() - self._suspected_s > SUSPECT_S:
            self.look_again()

    def look_again(self) -> None:
        """Ask all servers before the next statement, whatever connections are open."""
        self._suspected_s = time.monotonic()
        self._in_doubt = True

    def doubt(self) -> None:
        """A connection broke, or no answer came: another one may be primary by now."""
        self._in_doubt = True

    def failed(self, error: BaseException, *, is_broken: bool) -> None:
        """A statement failed. On a deposed primary a write that waits for a standby keeps its lock."""
        if is_broken:
            self.doubt()
        elif isinstance(error, Locked) and len(self.members) > 1:
            self.look_again()

    def is_deposed(self, position: Position | None) -> bool:
        """Whether a later timeline than that of this connection was seen."""
        return position is not None and position[0] < self.timeline

    def is_usable(self, link: Any) -> bool:
        """Whether an idle connection leads to who is primary as far as is known."""
        is_old = link.opened_s < self._suspected_s and not self.is_replica
        return not is_old and not self.is_deposed(link.position)

    def find(self, operation: str) -> StepsOf[Try | Drop | Rest, Any]:
        """A connection to the primary, waited for where a failover may be under way."""
        give_up_s = time.monotonic() + (0 if operation in AT_ONCE else self.failover_timeout_s)
        while True:
            reasons: list[HoldfastError] = []
            link = yield from self._look(reasons)
            if link is not None:
                return link
            if time.monotonic() + REST_S > give_up_s:
                raise self._not_found(reasons, operation)
            yield Rest(REST_S)

    def _look(self, reasons: list[HoldfastError]) -> StepsOf[Try | Drop | Rest, Any]:
        """The primary on the latest timeline; without a doubt, the one that it was before."""
        best, in_doubt = None, self._in_doubt
        for at in self._order():
            try:
                link = yield Try(self.members[at])
            except EngineUnreachable as error:
                reasons.append(error)
                in_doubt = True
                continue
            if self._is_foreign(link):
                yield Drop(link)
                reasons.append(_foreign(self.members[at]))
                if self.timeline:
                    continue
                if best is not None:
                    yield Drop(best)
                raise reasons[-1]  # which of the two is meant nobody can know
            if not self._may_be(link.position) or (
                best is not None and link.position <= best.position
            ):
                yield Drop(link)
                continue
            if best is not None:
                yield Drop(best)
            best, self._at = link, at
            # Later than all that was seen is new: who does not answer need not be waited for.
            if not in_doubt or 0 < self.timeline < (link.position or (0, 0))[0]:
                break
        if best is not None:
            self._found(best.position)
        return best

    def _is_foreign(self, link: Any) -> bool:
        """Whether it is of another database cluster: its timeline says nothing about ours."""
        self.system = self.system or link.system
        return bool(link.system) and link.system != self.system

    def _order(self) -> list[int]:
        """Last the one of which there is a doubt: it may take long to say nothing."""
        others = [at for at in range(len(self.members)) if at != self._at]
        return [*others, self._at] if self._in_doubt else [self._at, *others]

    def _may_be(self, position: Position | None) -> bool:
        if position is None:  # a standby is the caller's choice where the URL names nothing else
            return len(self.members) == 1
        return not self.is_deposed(position)

    def _found(self, position: Position | None) -> None:
        self._in_doubt = False
        if position is not None and position[0] > self.began[0]:
            self.timeline, self.began = max(self.timeline, position[0]), position

    def _not_found(self, reasons: list[HoldfastError], operation: str) -> HoldfastError:
        if len(self.members) == 1 and reasons:
            return reasons[0]
        known = f"; timeline {self.timeline} was seen, and none is on it" if self.timeline else ""
        words = "; ".join(str(reason) for reason in reasons)
        return EngineUnreachable(
            f"none of the {len(self.members)} server(s) that the URL names is the primary now"
            f"{known}; nothing was written. Try again when one was promoted"
            f"{f' ({words})' if words else ''}",
            operation=operation,
            backend=BACKEND,
        )


def _foreign(conninfo: dict[str, Any]) -> Refused:
    return Refused(
        f"the URL names servers of different database clusters ({conninfo['host']}:{conninfo['port']} "
        "is of another than the one before); nothing was written. Name the members of one",
        operation="connect",
        backend=BACKEND,
    )


def is_position(text: str) -> bool:
    """Whether that is a place in the log of a PostgreSQL."""
    return _POSITION.fullmatch(text) is not None


def read_position(text: str) -> Position:
    """A place in the log as numbers; timeline 0 where the text does not say it."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise UsageError("seen is an ack of another engine: its token is no position of this one")
    return int(found[3] or 0), int(found[1], 16) << 32 | int(found[2], 16)


def as_text(position: Position) -> str:
    """The same as text: a token."""
    timeline, number = position
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}@{timeline}"
