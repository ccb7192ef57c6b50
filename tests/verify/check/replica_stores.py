"""Users' stores on PostgreSQL that write to the primary and read from its replica."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.verify import Target
from holdfast.verify.engines import Engine
from tests.verify.check.clock_stores import WeekPostgres
from tests.verify.check.lock_stores import CLAIMS

CAUGHT_UP_S = 30.0
LATE = "1s"


class ReadsReplica(WeekPostgres):
    """Sound: a read waits until the replica has what was acknowledged to anybody before it."""

    def __init__(self, url: str, replica: str) -> None:
        super().__init__(url)
        self._replica = psycopg.connect(replica, autocommit=True)
        [(is_replica,)] = self._replica.execute("SELECT pg_is_in_recovery()").fetchall()
        assert is_replica

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        self.before_a_read()
        rows = self._replica.execute(
            "SELECT body FROM turns WHERE session = %s ORDER BY n DESC LIMIT %s", (session, limit)
        ).fetchall()
        return [json.loads(body) for (body,) in reversed(rows)]

    def before_a_read(self) -> None:
        self._catch_up()

    def _catch_up(self) -> None:
        [(wanted,)] = self._db.execute("SELECT pg_current_wal_lsn()::text").fetchall()
        there = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        deadline = time.monotonic() + CAUGHT_UP_S
        while self._replica.execute(there, (wanted,)).fetchall() != [(True,)]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the replica did not reach {wanted}")
            time.sleep(0.002)

    def close(self) -> None:
        self._replica.close()
        super().close()


class ReadsLateReplica(ReadsReplica):
    """Takes the replica as it is; and this one is late, as one far away is."""

    def __init__(self, url: str, replica: str) -> None:
        super().__init__(url, replica)
        self._catch_up()  # its tables are there
        self._replica.execute(f"ALTER SYSTEM SET recovery_min_apply_delay = '{LATE}'".encode())
        self._replica.execute("SELECT pg_reload_conf()")

    def before_a_read(self) -> None:
        """Nothing is waited for."""


def _target(kind: Callable[[str, str], Any]) -> Callable[[Engine], Target]:
    def target(engine: Any) -> Target:
        url, replica = engine.url, engine.replicas[0].url
        return Target(open=lambda: kind(url, replica), engine=engine, claims=CLAIMS)

    return target


reads_replica = _target(ReadsReplica)
reads_late_replica = _target(ReadsLateReplica)
