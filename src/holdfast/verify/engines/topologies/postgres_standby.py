"""A PostgreSQL primary with one synchronous and one asynchronous standby, promoted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from holdfast.errors import EngineFailed, FaultNotProven
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.postgres import PostgresEngine, PostgresReplica
from holdfast.verify.engines.process import START_TIMEOUT_S
from holdfast.verify.engines.topologies.postgres_members import (
    PROMOTE_TIMEOUT_S,
    PostgresTopology,
    most_advanced,
)
from holdfast.verify.proof import Evidence, await_true

_NAMES: Final = "synchronous_standby_names"


class PostgresStandby(PostgresTopology):
    """As an operator runs it without a coordinator.

    The setting `synchronous_standby_names=""` makes both standbys asynchronous.
    """

    topology = "standby"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        settings = dict(options.settings)
        self._is_synchronous = settings.pop(_NAMES, "*") != ""
        # A walreceiver that waits for its standby's data may be late by the writer's pause.
        self._member_options = replace(options, settings=settings, topology=None)

    def _begin(self) -> None:
        if self.members:
            for member in self.members:
                if member.pid is None:  # one that runs may follow another than when it was made
                    member.start()
            return
        primary = PostgresEngine(self._options_of(0))
        self.members.append(primary)
        primary.start()
        for at in range(1, len(self._ports)):
            self.members.append(self._standby(at, primary).start())
        self._name_synchronous(primary, self.members[1])
        self._await_followed(primary)

    def failover(self) -> Evidence:
        """SIGKILL the primary, and promote the standby that has received most."""
        return self._changed("failover", self.primary(), lambda old: old.kill(), self.promote)

    def switchover(self) -> Evidence:
        """Stop the primary cleanly, promote another, and let the old one follow it."""
        seen = self._changed("switchover", self.primary(), lambda old: old.stop(), self.promote)
        self.rejoin()
        return seen

    def partition(self, member: Any, *, from_: str = "members", way: str = "both") -> Evidence:
        """Cut a member off. Started with `partitions=True`, an operator promotes another primary."""
        seen = super().partition(member, from_=from_, way=way)
        if self._options.partitions and member is self.primary():
            self.promote(member)
        return seen

    def rejoin(self) -> Evidence:
        """Make every member that is down or deposed a standby of the primary, on a new copy of it."""
        primary = self.primary()
        joined = []
        for at, member in enumerate(self.members):
            if member is not primary and not _follows(member, primary):
                member.close()
                self.members[at] = self._standby(at, primary).start()
                joined.append(self.members[at].port)
        self._name_synchronous(primary, self._standbys(primary)[0])
        self._await_followed(primary)
        return Evidence("rejoin", f"ports {joined} follow {primary.port}", {"members": joined})

    def promote(self, old: Any) -> None:
        """Promote the standby that has received most, whether the old primary lives or not."""
        standbys = self._standbys(old)
        heir = most_advanced(standbys)
        others = [one for one in standbys if one is not heir]
        # Before it is primary, so that no commit of its first moments waits for nobody.
        self._name_synchronous(heir, *others[:1])
        promoted = heir.query(f"SELECT pg_promote(true, {PROMOTE_TIMEOUT_S:.0f})")
        if promoted != [("t",)]:
            raise FaultNotProven(f"port {heir.port} was not promoted:\n{heir.log()}")
        for other in others:
            other.follow(heir)

    def _name_synchronous(self, primary: Any, *standbys: Any) -> None:
        named = ", ".join(_name(one.port) for one in standbys) if self._is_synchronous else ""
        primary.query(f"ALTER SYSTEM SET {_NAMES} = '{f'FIRST 1 ({named})' if named else ''}'")
        primary.query("SELECT pg_reload_conf()")

    def _await_followed(self, primary: Any) -> None:
        wanted = sorted(["sync" if self._is_synchronous else "async", "async"])
        rows = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming' ORDER BY 1"

        def is_followed() -> bool:
            return [state for (state,) in primary.query(rows)] == wanted

        if not await_true(is_followed, START_TIMEOUT_S, poll_s=0.01):
            raise EngineFailed(f"the standbys of port {primary.port} do not follow:\n{self.log()}")

    def _standby(self, at: int, primary: Any) -> PostgresReplica:
        return PostgresReplica(self._options_of(at), primary, apply_delay_s=0)

    def _options_of(self, at: int) -> EngineOptions:
        port = self._ports[at].number
        settings = {"cluster_name": _name(port), **self._member_options.settings}
        return replace(self._member_options, port=port, settings=settings)

    def _password(self) -> str:
        return str(self.members[0].password)


def _name(port: int) -> str:
    """What a member calls itself to the primary."""
    return f"member_{port}"


def _follows(member: Any, primary: Any) -> bool:
    rows = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'"
    return member.pid is not None and (_name(member.port),) in primary.query(rows)
