"""What sentinels say in a failover, and what a store makes of it."""

from __future__ import annotations

import time
from typing import Any

import holdfast
from holdfast import Durability, Message
from holdfast.backends.redis.address import Server
from holdfast.backends.redis.sentinels import understood
from holdfast.pytest_plugin import EngineFactory

OLD, NEW, OTHER = 12073, 17152, 17758


def said(port: int, flags: str, **more: str) -> list[bytes]:
    """One entry of an answer, as Redis 7.0 gave it."""
    fields = {"ip": "127.0.0.1", "port": str(port), "flags": flags, "config-epoch": "1"}
    fields |= {"role-reported": "slave", "master-host": "127.0.0.1", "last-ok-ping-reply": "30"}
    fields |= {"master-link-down-time": "0", "down-after-milliseconds": "30000"}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    return [word.encode() for pair in fields.items() for word in pair]


def primary_of(view: Any) -> Server:
    assert not isinstance(view, Exception)
    found: Server = view[1]
    return found


def count_of(view: Any) -> int:
    assert not isinstance(view, Exception)
    return int(view[2])


def test_a_replica_that_was_just_promoted_still_has_to_confirm() -> None:
    """`REPLICAOF NO ONE` closes its connections, and to most sentinels that is the only sign of it.

    Without it the write would be confirmed by the replica that is made to follow the new primary.
    """
    primary = said(OLD, "master", role_reported="master")
    replicas = [said(OTHER, "slave"), said(NEW, "slave,disconnected")]
    assert count_of(understood([primary, replicas])) == 2


def test_a_replica_that_has_been_silent_for_long_is_not_waited_for() -> None:
    primary = said(OLD, "master", role_reported="master")
    gone = said(NEW, "slave,disconnected", last_ok_ping_reply="5001")
    assert count_of(understood([primary, [said(OTHER, "slave"), gone]])) == 1
    down = said(NEW, "s_down,slave,disconnected")
    assert count_of(understood([primary, [said(OTHER, "slave"), down]])) == 1


def test_the_sentinel_that_leads_a_failover_names_who_was_promoted() -> None:
    """It calls the old primary by the new epoch until the last replica follows the new one."""
    flags = "master,failover_in_progress"
    primary = said(OLD, flags, role_reported="master", config_epoch="2")
    begun = said(NEW, "slave,promoted")
    done = said(NEW, "slave,promoted", role_reported="master")
    assert primary_of(understood([primary, [begun, said(OTHER, "slave")]])).port == OLD
    assert primary_of(understood([primary, [done, said(OTHER, "slave,reconf_sent")]])).port == NEW


def test_who_was_promoted_is_no_replica_that_has_to_confirm() -> None:
    """Otherwise nothing is written until that failover is over, a second after all are ready."""
    flags = "master,failover_in_progress"
    primary = said(OLD, flags, role_reported="master", config_epoch="2")
    done = said(NEW, "slave,promoted", role_reported="master")
    assert count_of(understood([primary, [done, said(OTHER, "slave,reconf_sent")]])) == 1
    begun = said(NEW, "slave,promoted")
    assert count_of(understood([primary, [begun, said(OTHER, "slave")]])) == 2


def test_a_sentinel_that_hangs_holds_up_nobody(redis_engine_factory: EngineFactory) -> None:
    """It takes connections and answers nothing; two others know the primary."""
    engine: Any = redis_engine_factory(topology="sentinel")
    with holdfast.connect(engine.url, require=Durability.REPLICA) as store:
        store.append("s", Message("user", "before"))
        engine.sentinels[0].pause()
        try:
            begun_s, slowest_s = time.monotonic(), []
            while time.monotonic() - begun_s < 6:  # several looks at the sentinels
                before_s = time.monotonic()
                store.append("s", Message("user", "meanwhile"))
                slowest_s.append(time.monotonic() - before_s)
        finally:
            engine.sentinels[0].resume()
    # The first look waits for it, the next ones do not.
    assert sum(one > 1.5 for one in slowest_s) <= 1, sorted(slowest_s)[-5:]
    assert max(slowest_s) < 8
