"""What Redis topologies share: members with one password, and how a change of the primary is seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from holdfast.errors import EngineFailed, FaultNotProven, UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.process import START_TIMEOUT_S
from holdfast.verify.engines.raw_protocol import redis_call
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.engines.topologies.network import Network
from holdfast.verify.proof import Evidence, await_true

CHANGE_TIMEOUT_S: Final = 60.0
"""So long another member may take to become primary: on a busy machine the first election may fail."""
POLL_S: Final = 0.01
_MEMBER: Final = {
    # By default a primary waits five seconds for more replicas before it sends anything.
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "repl-timeout": "5",
}


class RedisMember(RedisEngine):
    """One of several: it answers on a port of its own, and others find it where it announces."""

    def __init__(self, options: EngineOptions, machine: str = HOST) -> None:
        own = {**_MEMBER, **options.settings}
        super().__init__(replace(options, port=None, settings=own))
        self.machine = machine
        """Where others find it: another address than loopback where it can be cut off."""
        self.follows: RedisMember | None = None
        """Whose replica it is when it starts next."""

    @property
    def public_port(self) -> int:
        """The port that others are told; the real one where nothing stands between."""
        return self.port

    def node_id(self) -> str:
        """Its name in a cluster."""
        return str(self.call("CLUSTER", "MYID"))

    def replication(self) -> dict[str, str]:
        """What it says of its role now; `OSError` where it does not answer."""
        return self.info("replication")

    def followers(self) -> int:
        """How many replicas it calls in step; one that is still being sent the data is connected, too."""
        return sum(",state=online," in word for word in self.replication().values())

    def is_primary(self) -> bool:
        """Whether it says so itself."""
        return self.pid is not None and self.replication()["role"] == "master"

    def _command(self) -> list[str]:
        words = super()._command()
        if self.machine != HOST:
            words += ["--bind-source-addr", self.machine, *self._announced()]
        if self.follows is not None:
            words += ["--replicaof", self.follows.machine, str(self.follows.public_port)]
        return words

    def _announced(self) -> list[str]:
        """How it says where it is to be found."""
        port = str(self.public_port)
        if not self.bus_offset:
            return ["--replica-announce-ip", self.machine, "--replica-announce-port", port]
        bus = str(self.port + self.bus_offset)
        words = ["--cluster-announce-ip", self.machine, "--cluster-announce-port", port]
        return [*words, "--cluster-announce-bus-port", bus]


class RedisTopology(Block):
    """Several Redis engines that are one service."""

    provider = "local"
    data_dir = None
    """None: every member has its own."""
    topology = ""
    machines = 3
    """One for each member: each can be cut off, with what runs on it."""

    def __init__(self, options: EngineOptions) -> None:
        self.kind, self.config, self._options = options.kind, options.config, options
        self.network = Network(self.machines) if options.partitions else None
        hosts = self.network.hosts if self.network else [HOST] * self.machines
        own = self._of_member(options)
        self.members = [RedisMember(own, host) for host in hosts]
        self._is_formed = False

    @staticmethod
    def _of_member(options: EngineOptions) -> EngineOptions:
        return options

    # What each supplies

    @property
    def url(self) -> str:
        """Where the service is found, whichever member is primary."""
        raise NotImplementedError

    def primary(self) -> RedisMember:
        """The member that takes writes now; `FaultNotProven` where none does."""
        raise NotImplementedError

    def epoch(self) -> int:
        """How often the members have agreed on a primary: it only grows."""
        raise NotImplementedError

    def _processes(self) -> list[RedisEngine]:
        """Members first, then those that watch them."""
        return list(self.members)

    def _form(self) -> None:
        """Make one service of them; once."""
        raise NotImplementedError

    def _missing(self) -> Iterator[str]:
        """What is still to come before all members work together, in words."""
        raise NotImplementedError

    def _heir(self, old: RedisMember) -> Callable[[], RedisMember | None]:
        """Asks who has taken the place of this primary; None while nobody has."""
        raise NotImplementedError

    def _hand_over(self, old: RedisMember) -> None:
        """Ask for another primary, as an operator does."""
        raise NotImplementedError

    # What all have

    @property
    def version(self) -> str:
        """What the running engine says of itself."""
        return self.members[0].version

    def start(self) -> Self:
        """Run all; returns when all members work together."""
        if not self._is_formed:
            self._form()
            self._is_formed = True
        self.rejoin()
        return self

    def stop(self) -> None:
        """End all cleanly; their data stay."""
        for process in reversed(self._processes()):
            process.stop()

    def close(self) -> None:
        """End all at once and remove what they left."""
        for process in reversed(self._processes()):
            process.close()
        if self.network is not None:
            self.network.close()

    def log(self, lines: int = 40) -> str:
        """The last lines of every log."""
        return "\n".join(f"{one.port}:\n{one.log(lines)}" for one in self._processes() if one.pid)

    def _enter(self) -> object:
        return self.start()

    def kill(self) -> Evidence:
        """SIGKILL every process of every member, and wait until each is gone."""
        seen = [one.kill() for one in self.members if one.pid is not None]
        words = f"all {len(seen)} members ended by SIGKILL"
        return Evidence("kill", words, {"members": [one.facts for one in seen]})

    def failover(self) -> Evidence:
        """SIGKILL the primary, and wait in bounded time until another member is primary."""
        return self._changed("failover", lambda old: old.kill())

    def switchover(self) -> Evidence:
        """Make another member primary, with the old one alive."""
        return self._changed("switchover", self._hand_over)

    def rejoin(self) -> Evidence:
        """Start what is down, and wait until every member follows the primary again."""
        down = [one for one in self._processes() if one.pid is None]
        self._restart_members([one for one in self.members if one.pid is None])
        for process in down:
            process.start()
        missing = ["no answer"]

        def ready() -> bool:
            missing[:] = [next(self._missing(), "")]
            return not missing[0]

        if not await_true(ready, START_TIMEOUT_S, POLL_S):
            raise EngineFailed(f"the {self.topology} is not whole: {missing[0]}\n{self.log(15)}")
        ports = [one.port for one in down]
        return Evidence(
            "rejoin", f"{len(down)} came back, all follow the primary", {"ports": ports}
        )

    def _restart_members(self, down: Sequence[RedisMember]) -> None:
        """Say whose replica each is; a member that was primary comes back as one that follows."""

    def partition(self, member: Any, *, from_: str = "members", way: str = "both") -> Evidence:
        """Cut this member off from other members, from clients, or from all; `out` or `in` only."""
        return self._cuttable().cut(self.members.index(member), from_, way)

    def heal(self) -> Evidence:
        """Let all bytes pass again."""
        return self._cuttable().heal()

    def _cuttable(self) -> Network:
        if self.network is None:
            raise UsageError("start_engine(topology=…, partitions=True) has a network to cut")
        return self.network

    def _changed(self, fault: str, strike: Callable[[RedisMember], object]) -> Evidence:
        old = self.primary()
        heir, epoch = self._heir(old), self.epoch()
        sent = int(old.replication()["master_repl_offset"])
        began = time.monotonic()
        strike(old)
        found: list[RedisMember] = []

        def changed() -> bool:
            now = heir()
            found[:] = [] if now is None else [now]
            return bool(found)

        if not await_true(changed, CHANGE_TIMEOUT_S, POLL_S):
            raise FaultNotProven(
                f"{fault}: no other member became primary within {CHANGE_TIMEOUT_S:g} s\n{self.log(15)}"
            )
        seconds = time.monotonic() - began
        new, after = found[0], self.epoch()
        kept = int(new.replication()["second_repl_offset"]) - 1
        lost = max(sent - kept, 0)
        return Evidence(
            fault,
            f"primary was {old.port} in epoch {epoch}, is {new.port} in epoch {after} after "
            f"{seconds:.2f} s; at least {lost} bytes were not replicated",
            {
                "before": old.port,
                "after": new.port,
                "epoch_before": epoch,
                "epoch_after": after,
                "seconds": round(seconds, 3),
                "unreplicated_bytes": lost,
            },
        )

    def at(self, port: int) -> RedisMember | None:
        """The member that others find at this port."""
        return next((one for one in self.members if one.public_port == port), None)


def ask(port: int, *words: str, password: str) -> Any:
    """One question with a short bound: a member that does not answer holds nobody up."""
    return redis_call(port, *words, password=password, timeout_s=1.0)


def lagging(members: Sequence[RedisMember]) -> Iterator[str]:
    """Which replicas are not connected to their primary, in words."""
    for one in members:
        info = one.replication()
        if info["role"] != "master" and info.get("master_link_status") != "up":
            yield f"{one.port} does not follow yet"
