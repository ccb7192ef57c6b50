"""What topologies of PostgreSQL share: members asked over SQL, a URL that names them all, cut cables."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol, Self

from holdfast.errors import FaultNotProven, UsageError
from holdfast.linux import is_gone, thread_states
from holdfast.verify import reaper
from holdfast.verify.blocks import Block
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST, Port, reserve_port
from holdfast.verify.engines.process import ANSWER_TIMEOUT_S
from holdfast.verify.proof import Evidence, await_true

MEMBERS: Final = 3
PROMOTE_TIMEOUT_S: Final = 60.0
TIMELINE: Final = (
    "('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"
)
"""Of a primary, as SQL: the control file says it only after its next checkpoint."""
_STATE: Final = f"SELECT {TIMELINE}, pg_current_wal_lsn() - '0/0'"
_RECEIVED: Final = (
    "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), '0/0') - '0/0'"
)


class Member(Protocol):
    """A server of a topology, and the process that it is."""

    @property
    def port(self) -> int:
        """Where clients reach it."""

    @property
    def pid(self) -> int | None:
        """Its first process; None while it is down."""

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        """One statement; `OSError` where it does not answer."""


class PostgresTopology(Block):
    """Three servers of which one is the primary; a subclass says how that changes."""

    provider = "local"
    topology = ""
    data_dir = None
    """None: every member has its own."""

    def __init__(self, options: EngineOptions) -> None:
        self.kind = options.kind
        self.config = options.config
        self.members: list[Any] = []
        """The servers; in the same order, also after a failover."""
        self._options = options
        self._ports: list[Port] = []
        self._cut: list[int] = []

    @property
    def url(self) -> str:
        """All members: a client finds the primary among them."""
        hosts = ",".join(f"{HOST}:{port.number}" for port in self._ports)
        return f"postgresql://postgres:{self._password()}@{hosts}/postgres?target_session_attrs=read-write"

    @property
    def version(self) -> str:
        """What the running servers say of themselves."""
        return str(self.members[0].version)

    def start(self) -> Self:
        """Run it and return when every member follows the primary."""
        if not self._ports:
            self._ports = [reserve_port() for _ in range(MEMBERS)]
        self._begin()
        return self

    def stop(self) -> None:
        """End all members cleanly; their data stay."""
        self._let_pass()
        for member in self.members:
            member.stop()

    def close(self) -> None:
        """End all members at once and remove what they left."""
        self._let_pass()
        for member in self.members:
            member.close()
        for port in self._ports:
            port.release()
        self._ports = []

    def log(self, lines: int = 40) -> str:
        """The last lines of every member's log."""
        return "\n".join(f"port {one.port}:\n{one.log(lines)}" for one in self.members)

    def _enter(self) -> object:
        return self.start()

    # What each supplies

    def _begin(self) -> None:
        raise NotImplementedError

    def _password(self) -> str:
        raise NotImplementedError

    # Who is who

    def primary(self) -> Any:
        """The member that takes writes; of two that say so, the one on the later timeline."""
        try:
            return self._primary()
        except OSError as error:
            raise FaultNotProven(str(error)) from error

    def timeline(self, member: Member) -> int:
        """The timeline on which a primary writes."""
        return _number(member.query(_STATE)[0][0])

    def _primary(self, *, without: Member | None = None) -> Any:
        """The primary among the others; `OSError` where there is none."""
        found = []
        for member in self.members:
            with contextlib.suppress(OSError):
                if member is not without and member.pid is not None and is_primary(member):
                    found.append((self.timeline(member), member.port, member))
        if not found:
            raise ConnectionError("no member of the topology is a primary now")
        return max(found, key=lambda one: one[:2])[2]

    def _standbys(self, primary: Member) -> list[Any]:
        return [one for one in self.members if one is not primary and one.pid is not None]

    def _changed(self, fault: str, before: Member, end: Any, change: Any) -> Evidence:
        """End the old primary, change, and tell what happened between the two."""
        timeline, written = (_number(value) for value in before.query(_STATE)[0])
        begun_s = time.monotonic()
        end(before)
        change(before)
        after: list[Any] = []

        def is_there() -> bool:
            after[:] = [self._primary(without=before)]
            return True

        if not await_true(is_there, PROMOTE_TIMEOUT_S, poll_s=0.01):
            raise FaultNotProven(f"{fault}: no other member became primary\n{self.log()}")
        seconds = time.monotonic() - begun_s
        had = received(after[0])
        return Evidence(
            fault,
            f"port {after[0].port} is primary in place of {before.port} after {seconds:.2f} s, on "
            f"timeline {self.timeline(after[0])} after {timeline}",
            {
                "before": before.port,
                "after": after[0].port,
                "epoch_before": timeline,
                "epoch_after": self.timeline(after[0]),
                "seconds": seconds,
                "unreplicated_bytes": max(0, written - had),
            },
        )

    # Cables

    def partition(self, member: Any, *, from_: str = "members", way: str = "both") -> Evidence:
        """Cut a member off from the others, while clients still reach it; `all` from these as well.

        The processes that send its log stand still, or all of them: no byte arrives.
        """
        if from_ not in {"members", "all"}:
            raise UsageError(f"postgres members are cut off from `members` or `all`, not {from_!r}")
        if way != "both":
            raise UsageError("postgres members are cut off both ways: processes stand still")
        if from_ == "all":
            return self._noted(member.pause(), member)
        pids = self._cables(member)
        self._cut += pids
        reaper.signal_all(pids, signal.SIGSTOP)
        if not pids or not await_true(lambda: all(map(_stands_still, pids)), ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"partition: processes {pids} of port {member.port} go on")
        seen = f"port {member.port} sends nothing to other members: processes {pids} stopped"
        return Evidence("partition", seen, {"member": member.port, "from": from_, "pids": pids})

    def heal(self) -> Evidence:
        """Let bytes pass again, those that were held first."""
        pids = self._let_pass()
        if not await_true(lambda: not any(map(_stands_still, pids)), ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"heal: of {pids} some still stand")
        return Evidence("heal", f"{len(pids)} processes go on", {"pids": pids})

    def _cables(self, member: Any) -> list[int]:
        """The processes through which a member talks to the others."""
        rows = member.query("SELECT pid FROM pg_stat_replication")
        return [_number(pid) for (pid,) in rows]

    def _noted(self, evidence: Evidence, member: Any) -> Evidence:
        pids = list(evidence.facts["states"])
        self._cut += pids
        facts = {"member": member.port, "from": "all", "pids": pids}
        return Evidence("partition", f"port {member.port} answers nobody", facts)

    def _let_pass(self) -> list[int]:
        pids, self._cut = [pid for pid in self._cut if not is_gone(pid)], []
        reaper.signal_all(pids, signal.SIGCONT)
        return pids


def is_primary(member: Member) -> bool:
    """Whether it says so."""
    return member.query("SELECT pg_is_in_recovery()") == [("f",)]


def received(member: Member) -> int:
    """How far the log of another has come to it."""
    return _number(member.query(_RECEIVED)[0][0])


def most_advanced(standbys: Sequence[Any]) -> Any:
    """Whom an operator promotes: who has received most has all that any other confirmed."""
    return max(standbys, key=lambda one: (received(one), one.port))


def _number(value: str | None) -> int:
    return int(value or 0)


def _stands_still(pid: int) -> bool:
    states = thread_states(pid)  # of one that ends in this moment, none
    return bool(states) and states <= {"T", "t"}
