"""1 durable, 5 fresh, 11 loud on several machines: what a failover may not take, and who may be written to."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import Message as Header
from io import BytesIO
from typing import Any
from urllib.error import HTTPError

import pytest

import holdfast
from holdfast import Durability, EngineUnreachable, OutcomeUnknown, Refused, Retention
from holdfast.backends.postgres.address import read_address
from holdfast.backends.postgres.hosts import Hosts, Try
from holdfast.runner import run
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.topologies import patroni_member
from tests.contract.harness import say, texts
from tests.postgres.failovers import failover_under_load
from tests.waiting import wait_until

REPLICA, DISK = Durability.REPLICA, Durability.DISK
NAMES = "synchronous_standby_names"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with start_engine("postgres", topology="standby") as topology:
        holdfast.connect(topology.url).close()  # its tables, on every member
        yield topology


@pytest.fixture(scope="module")
def elected() -> Iterator[Any]:
    with start_engine("postgres", topology="patroni") as topology:
        yield topology


@pytest.fixture
def patroni(elected: Any) -> Iterator[Any]:
    elected.heal()
    elected.rejoin()
    yield elected
    elected.heal()


@pytest.fixture
def topology(cluster: Any) -> Iterator[Any]:
    """All three members in their places, whatever the test before did."""
    cluster.heal()
    cluster.rejoin()
    yield cluster
    cluster.heal()


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def is_waiting(member: Any) -> bool:
    rows = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(member.query(rows) != [("0",)])


def set_names(member: Any, value: str) -> None:
    member.query(f"ALTER SYSTEM SET {NAMES} = '{value}'")
    member.query("SELECT pg_reload_conf()")


def append_released(topology: Any, store: holdfast.Store, session: str) -> holdfast.Ack:
    """An append whose wait for the standby ends because somebody empties the names of standbys."""
    primary = topology.primary()
    [(names,)] = primary.query(f"SHOW {NAMES}")
    topology.partition(primary)
    try:
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(store.append, session, say("on one machine"), key="k")
            wait_until(lambda: is_waiting(primary))
            set_names(primary, "")
            return begun.result(60)
    finally:
        set_names(primary, names)
        topology.heal()


def test_a_wait_that_was_released_without_a_standby_is_no_ack_of_a_replica(
    topology: Any, session: str
):
    """PostgreSQL releases it without a word: the settings in force when it began said REPLICA."""
    url = f"{topology.url}&failover_timeout_s=0"  # it is not repeated, so that its first outcome is seen
    with holdfast.connect(url, require=REPLICA) as store:
        with pytest.raises(OutcomeUnknown, match="no standby has confirmed"):
            append_released(topology, store, session)
        wait_until(lambda: _is_acknowledged(store, session))
        assert texts(store.history(session)) == ["on one machine"]


def _is_acknowledged(store: holdfast.Store, session: str) -> bool:
    try:
        return store.append(session, say("on one machine"), key="k").durability is REPLICA
    except (Refused, OutcomeUnknown):  # the names of standbys are not back yet
        return False


def test_below_replica_the_ack_says_what_the_write_has(topology: Any, session: str):
    with holdfast.connect(topology.url, require=DISK) as store:
        assert store.append(session, say("on two")).durability is REPLICA
        assert append_released(topology, store, session).durability is DISK


def test_members_that_are_named_as_replicas_may_have_been_promoted(topology: Any, session: str):
    """Who names all members in both places connects after a failover, too, and reads what is there."""
    replicas = [one.url for one in topology.members]
    with holdfast.connect(topology.url, require=REPLICA) as writer:
        before = writer.append(session, say("before"))
        topology.failover()
        acks = [before, writer.append(session, say("after"), key="k")]
    with holdfast.connect(topology.url, replicas=replicas) as reader:
        for _ in replicas:  # each is asked in its turn
            pages = [texts(reader.history(session, seen=ack)) for ack in acks]
            assert pages == [["before", "after"]] * 2


def test_a_role_that_may_not_see_standbys_is_told_which_right_it_lacks(topology: Any, session: str):
    primary = topology.primary()
    primary.query("CREATE ROLE blind LOGIN")
    try:
        with holdfast.connect(topology.url):
            pass
        primary.query("GRANT USAGE ON SCHEMA holdfast TO blind")
        primary.query("GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO blind")
        primary.role_url("blind")
        url = topology.url.replace("//postgres:", "//blind:")
        with pytest.raises(Refused, match="GRANT pg_read_all_stats"):
            holdfast.connect(url, require=REPLICA)
        with holdfast.connect(url) as store:
            assert store.append(session, say("seen by nobody")).durability is DISK
    finally:
        primary.query("DROP OWNED BY blind")
        primary.query("DROP ROLE blind")


def test_the_store_finds_the_new_primary_by_itself(topology: Any, session: str):
    with holdfast.connect(topology.url, require=REPLICA) as store:
        store.append(session, say("before"), key="1")
        topology.failover()
        assert store.append(session, say("after"), key="2").durability is REPLICA
        assert texts(store.history(session)) == ["before", "after"]


@pytest.mark.parametrize("retention", [None, Retention(last=2)], ids=["all", "retention"])
def test_an_append_under_way_in_a_failover_is_repeated_by_its_key(
    topology: Any, session: str, retention: Retention | None
):
    """Held on the old primary when that is killed: its outcome is unknown to everybody."""
    with holdfast.connect(topology.url, require=REPLICA, retention=retention) as store:
        store.append(session, say("before"))
        old = topology.primary()
        topology.partition(old)
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(store.append, session, say("under way"), key="k")
            wait_until(lambda: is_waiting(old))
            topology.failover()
            assert begun.result(60).durability is REPLICA
        assert texts(store.history(session)) == ["before", "under way"]


def test_without_a_key_an_unknown_outcome_stays_unknown(topology: Any, session: str):
    with holdfast.connect(topology.url, require=REPLICA) as store:
        old = topology.primary()
        topology.partition(old)
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(store.append, session, say("under way"))
            wait_until(lambda: is_waiting(old))
            topology.failover()
            with pytest.raises(OutcomeUnknown):
                begun.result(60)


def test_what_a_held_primary_is_sent_is_not_acknowledged_when_it_wakes_up(
    topology: Any, session: str
):
    """It commits what was sent before, and nobody has told it that another was promoted."""
    url, keyless = f"{topology.url}&reply_timeout_s=3", f"{session}, without a key"
    with holdfast.connect(url, require=REPLICA) as store, ThreadPoolExecutor(2) as pool:
        with holdfast.connect(url, require=REPLICA) as other:
            store.append(session, say("before"))
            other.append(keyless, say("before"))
            old = topology.primary()
            old.pause()
            try:
                begun = pool.submit(store.append, session, say("meanwhile"), key="k")
                without = pool.submit(other.append, keyless, say("meanwhile"))
                topology.promote(old)
            finally:
                old.resume()
            assert isinstance(without.exception(60), OutcomeUnknown)
            assert begun.result(60).durability is REPLICA
        new = topology.primary()
        assert new is not old
        assert (last_on(new, session), last_on(new, keyless)) == (2, 1)
        assert texts(store.history(session)) == ["before", "meanwhile"]
        assert texts(store.history(keyless)) == ["before"]


def last_on(member: Any, session: str) -> int | None:
    rows = member.query(f"SELECT last FROM holdfast.sessions WHERE name = '{session}'")
    return int(rows[0][0]) if rows else None


def depose(topology: Any, names: str | None = "") -> Any:
    """Another member is promoted although the primary lives: returns the old one, which takes writes."""
    old = topology.primary()
    if names is not None:
        set_names(old, names)  # as an operator does whose standbys are gone
    topology.partition(old)
    topology.promote(old)
    assert old.query("SELECT pg_is_in_recovery()") == [("f",)]
    return old


def test_a_new_store_writes_to_the_later_of_two_primaries(topology: Any, session: str):
    old = depose(topology)
    ports = [old.port, *(one.port for one in topology.members if one is not old)]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)  # the deposed one first
    with holdfast.connect(f"postgresql://postgres:{old.password}@{hosts}/postgres") as store:
        store.append(session, say("kept"))
    assert last_on(topology.primary(), session) == 1
    assert last_on(old, session) is None


def test_a_store_that_has_seen_a_later_timeline_leaves_a_deposed_primary(
    topology: Any, session: str
):
    """Its connections are open and the deposed primary answers; the ack that it is shown is later."""
    with holdfast.connect(topology.url) as reader:
        reader.append(session, say("on both"))
        depose(topology)
        with holdfast.connect(topology.url) as writer:
            ack = writer.append(session, say("on the new one"))
        assert ack.token
        assert texts(reader.history(session, seen=ack)) == ["on both", "on the new one"]
        reader.append(session, say("there as well"))
        assert len(reader.history(session)) == 3
    assert last_on(topology.primary(), session) == 3


@pytest.mark.parametrize("names", ["", None], ids=["without standbys", "with a silent standby"])
def test_a_store_that_was_idle_in_a_failover_reads_the_new_primary(
    topology: Any, session: str, names: str | None
):
    """Nobody has told it: its connection is open, it has no token, and the deposed primary answers."""
    with holdfast.connect(topology.url, require=REPLICA) as reader:
        reader.append(session, say("on both"))
        assert texts(reader.history(session)) == ["on both"]
        old = depose(topology, names=names)
        with holdfast.connect(topology.url, require=REPLICA) as writer:
            writer.append(session, say("on the new one"), key="k")
        assert last_on(old, session) == 1
        assert texts(reader.history(session)) == ["on both", "on the new one"]
        assert reader.stat(session).count == 2


def test_a_deposed_primary_is_not_read_where_the_new_one_is_silent(topology: Any, session: str):
    """Another server says that it follows a later timeline."""
    with holdfast.connect(f"{topology.url}&connect_timeout=2", require=REPLICA) as reader:
        reader.append(session, say("on both"))
        depose(topology)
        with holdfast.connect(topology.url, require=REPLICA) as writer:
            writer.append(session, say("on the new one"), key="k")
        new = topology.primary()
        new.pause()
        try:
            with pytest.raises(EngineUnreachable, match="it was deposed"):
                reader.history(session)
        finally:
            new.resume()
        assert texts(reader.history(session)) == ["on both", "on the new one"]


def test_a_token_without_a_timeline_is_still_read(topology: Any, session: str):
    """An ack of an earlier release."""
    with holdfast.connect(topology.url) as store:
        ack = store.append(session, say("a"))
        old = holdfast.Ack(session, ack.first, ack.last, ack.durability, token="0/1000000")
        assert texts(store.history(session, seen=old)) == ["a"]


def test_a_token_of_a_timeline_that_nobody_has_harms_only_its_reader(topology: Any, session: str):
    """An ack of another cluster, or one that somebody made up."""
    with holdfast.connect(topology.url) as store:
        ack = store.append(session, say("a"))
        made_up = holdfast.Ack(session, 1, 1, ack.durability, token="0/1@4000000000")
        with pytest.raises(EngineUnreachable, match="timeline 4000000000"):
            store.history(session, seen=made_up)
        store.append(session, say("b"))
        assert texts(store.history(session, seen=ack)) == ["a", "b"]


def test_a_replica_of_another_timeline_does_not_answer(topology: Any, session: str):
    """It follows the deposed primary, beyond the place where the new timeline began."""
    with holdfast.connect(topology.url) as store:
        store.append(session, say("on both"))
    old = topology.primary()
    heir, other = (one for one in topology.members if one is not old)
    set_names(heir, "")
    heir.query("SELECT pg_promote()")
    old.query(
        "SET synchronous_commit = local; CREATE TABLE further AS SELECT generate_series(1, 50000)"
    )
    at = old.query("SELECT pg_current_wal_flush_lsn()")[0][0]
    wait_until(lambda: other.query(f"SELECT pg_last_wal_replay_lsn() >= '{at}'") == [("t",)])
    with holdfast.connect(heir.url, replicas=[other.url]) as store:
        store.append(session, say("on the new timeline"))
        assert texts(store.history(session)) == ["on both", "on the new timeline"]
        assert heir.query(f"SELECT pg_current_wal_lsn() < '{at}'") == [("t",)], "nothing was shown"


def test_nothing_acknowledged_is_lost_in_failovers_under_load(topology: Any, session: str):
    losses = [failover_under_load(topology, f"{session}-{at}")[1] for at in range(2)]
    assert losses == [0, 0]


def test_nothing_acknowledged_is_lost_in_failovers_of_patroni(patroni: Any, session: str):
    assert failover_under_load(patroni, session)[1] == 0


def test_a_primary_whose_patroni_hangs_is_left_for_the_one_that_was_elected(
    patroni: Any, session: str
):
    """It lives and takes connections, and nobody has told it that it was deposed."""
    url = f"{patroni.url}&reply_timeout_s=5"
    with holdfast.connect(url, require=REPLICA) as store:
        store.append(session, say("before"))
        old = patroni.primary()
        patroni.partition(old)
        assert store.append(session, say("on the elected one"), key="k").durability is REPLICA
        assert patroni.primary() is not old
        assert texts(store.history(session)) == ["before", "on the elected one"]


def test_a_session_locked_on_a_deposed_primary_is_written_on_the_new_one(
    topology: Any, session: str
):
    """There a write waits for a standby that has left, and holds the lock of its session meanwhile."""
    url = f"{topology.url}&reply_timeout_s=3"
    with holdfast.connect(topology.url, require=REPLICA) as first, ThreadPoolExecutor(1) as pool:
        with holdfast.connect(url, require=REPLICA) as second:
            second.append(session, say("before"))
            old = topology.primary()
            topology.partition(old)
            begun = pool.submit(first.append, session, say("under way"), key="k")
            wait_until(lambda: is_waiting(old))
            topology.promote(old)
            with pytest.raises(EngineUnreachable, match="lock"):
                second.append(session, say("after"), key="2")
            assert second.append(session, say("after"), key="2").durability is REPLICA
        assert last_on(topology.primary(), session) == 2
        old.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        )
        assert begun.result(60).durability is REPLICA


def test_a_url_with_a_server_of_another_cluster_is_refused(topology: Any, patroni: Any):
    """Their timelines are no order: what the stranger is given is nowhere in our cluster."""
    stranger, ours = patroni.primary(), topology.primary()
    for one in (stranger, ours):
        one.query("CREATE ROLE of_both LOGIN SUPERUSER PASSWORD 'same'")
    try:
        hosts = f"127.0.0.1:{ours.port},127.0.0.1:{stranger.port}"
        with pytest.raises(Refused, match="different database clusters"):
            holdfast.connect(f"postgresql://of_both:same@{hosts}/postgres")
    finally:
        for one in (stranger, ours):
            one.query("DROP ROLE of_both")


@dataclass
class Said:
    """What a server says of itself when a connection to it is opened."""

    system: str | None
    position: tuple[int, int] | None


def found(hosts: Hosts, servers: list[Said]) -> Said:
    """The one that is chosen of these, each of which answers."""

    def do(step: Any) -> Said | None:
        return servers[hosts.members.index(step.conninfo)] if isinstance(step, Try) else None

    chosen: Said = run(hosts.find("append"), do)
    return chosen


def test_a_later_timeline_of_another_cluster_deposes_nobody():
    hosts = Hosts(read_address("postgresql://a:1,b:2,c:3/x?failover_timeout_s=0"))
    ours, standby, stranger = Said("1", (2, 50)), Said("1", None), Said("2", (9, 10))
    assert found(hosts, [ours, standby, standby]) is ours
    hosts.look_again()
    assert found(hosts, [ours, standby, stranger]) is ours
    assert hosts.timeline == 2
    promoted = Said("1", (3, 60))
    hosts.look_again()
    assert found(hosts, [stranger, promoted, standby]) is promoted


def test_a_switchover_that_patroni_is_not_ready_for_is_asked_for_again(
    patroni: Any, monkeypatch: pytest.MonkeyPatch
):
    """It hears of a synchronous standby up to a second later than that one is."""
    refused = [HTTPError("", 412, "Precondition Failed", Header(), BytesIO(b"no candidate"))]
    asked = patroni_member._get

    def refuses_once(url: str, *rest: Any, **more: Any) -> Any:
        if refused and url.endswith("/switchover"):
            raise refused.pop()
        return asked(url, *rest, **more)

    monkeypatch.setattr(patroni_member, "_get", refuses_once)
    old = patroni.primary()
    assert patroni.switchover().facts["before"] == old.port
    assert patroni.primary() is not old
    assert not refused
