"""Three PostgreSQL under Patroni, which agree in one etcd who is primary."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import EngineFailed
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.process import START_TIMEOUT_S
from holdfast.verify.engines.topologies.patroni_member import Etcd, PatroniMember, takes_lead_back
from holdfast.verify.engines.topologies.postgres_members import MEMBERS, PostgresTopology
from holdfast.verify.proof import Evidence, await_true

_MODE: Final = "synchronous_mode"


class PostgresPatroni(PostgresTopology):
    """A coordinator promotes. The setting `synchronous_mode=off` is what Patroni has by itself."""

    topology = "patroni"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        settings = dict(options.settings)
        self._is_synchronous = settings.pop(_MODE, "on") not in {"off", "no", "false"}
        self._member_options = replace(options, settings=settings)
        self._secret = secrets.token_hex(16)
        self.coordinator = Etcd(options)
        """The etcd: killed or held, no member can become primary, and none stays it for long."""

    def _begin(self) -> None:
        if not self.members:
            self.coordinator.start().protect()
            self.members = [self._member(port.number) for port in self._ports]
        self.coordinator.start()
        self._start_all()

    def stop(self) -> None:
        """End all members cleanly, then the etcd; their data stay."""
        super().stop()
        self.coordinator.stop()

    def close(self) -> None:
        """End all members and the etcd at once and remove what they left."""
        super().close()
        self.coordinator.close()

    def failover(self) -> Evidence:
        """SIGKILL the primary and its Patroni; the others elect a new one when its lease has run out."""
        return self._changed("failover", self.primary(), lambda old: old.kill(), _wait)

    def switchover(self) -> Evidence:
        """Ask Patroni for another primary; the old one follows it."""
        seen = self._changed("switchover", self.primary(), lambda old: old.switch(), _wait)
        self._await_whole()
        return seen

    def rejoin(self) -> Evidence:
        """Start what is down and wait until every member follows the primary."""
        down = [one.port for one in self.members if one.pid is None]
        self._start_all()
        return Evidence("rejoin", f"ports {down} follow again", {"members": down})

    def _member(self, port: int) -> PatroniMember:
        return PatroniMember(
            self._member_options,
            port,
            self.coordinator,
            password=self._secret,
            synchronous=self._is_synchronous,
        )

    def _start_all(self) -> None:
        with ThreadPoolExecutor(MEMBERS) as pool:
            list(pool.map(lambda member: member.start(), self.members))
        self._await_whole()

    def _await_whole(self) -> None:
        if not await_true(self._is_whole, START_TIMEOUT_S, poll_s=0.05):
            raise EngineFailed(f"the members of Patroni did not come together:\n{self.log()}")

    def _is_whole(self) -> bool:
        """One primary that the others follow, of which one is synchronous where that is wanted."""
        # A copy that is under way streams as well: it is no member yet.
        rows = (
            "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming' "
            "AND application_name <> 'pg_basebackup' ORDER BY 1"
        )
        states = [state for (state,) in self._primary().query(rows)]
        return states == ["async", "sync" if self._is_synchronous else "async"]

    def _cables(self, member: Any) -> list[int]:
        """What sends its log, and Patroni, which then neither renews its lease nor steps down."""
        return [*super()._cables(member), member.pid]

    def _let_pass(self) -> list[int]:
        # Woken up, an early Patroni may take the lead back: it is started again instead, by `rejoin`.
        for member in self.members if self._cut and takes_lead_back() else ():
            if member.pid in self._cut:
                member.end_patroni()
        return super()._let_pass()

    def _password(self) -> str:
        return self._secret


def _wait(_old: object) -> None:
    """Patroni acts by itself."""
