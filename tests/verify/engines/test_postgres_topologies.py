"""Topologies of PostgreSQL: another primary after each failover, proven, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from holdfast.linux import users_of
from holdfast.verify.engines import Topology, start_engine
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.engines.topologies.patroni_member import PatroniMember, takes_lead_back


@pytest.fixture(scope="module")
def standby() -> Iterator[Any]:
    with start_engine("postgres", topology="standby") as topology:
        yield topology


def test_a_topology_is_what_the_protocol_says(standby: Any):
    assert isinstance(standby, Topology)
    assert len(standby.members) == 3
    states = "SELECT sync_state FROM pg_stat_replication ORDER BY 1"
    assert standby.primary().query(states) == [("async",), ("sync",)]


def test_after_a_failover_another_member_is_primary_on_a_later_timeline(standby: Any):
    old = standby.primary()
    facts = standby.failover().facts
    new = standby.primary()
    assert (facts["before"], facts["after"]) == (old.port, new.port)
    assert old.port != new.port
    assert old.pid is None
    assert facts["epoch_after"] == facts["epoch_before"] + 1
    standby.rejoin()
    assert new.query("SELECT count(*) FROM pg_stat_replication") == [("2",)]
    assert standby.primary() is new


def test_after_a_switchover_the_old_primary_follows_the_new_one(standby: Any):
    old = standby.primary().port
    standby.switchover()
    followers = standby.primary().query("SELECT application_name FROM pg_stat_replication")
    assert (f"member_{old}",) in followers


def test_a_member_that_is_cut_off_sends_nothing_until_it_is_healed(standby: Any):
    primary = standby.primary()
    primary.query("CREATE TABLE IF NOT EXISTS t (n int)")
    standby.partition(primary)
    primary.query("SET synchronous_commit = local; INSERT INTO t VALUES (1)")
    written = primary.query("SELECT pg_current_wal_lsn() - '0/0'")[0][0]
    others = [one for one in standby.members if one is not primary]
    received = "SELECT pg_last_wal_receive_lsn() - '0/0'"
    assert all(int(one.query(received)[0][0]) < int(written) for one in others)
    standby.heal()
    wait_until(lambda: all(int(one.query(received)[0][0]) >= int(written) for one in others))


def test_nothing_is_left_of_a_topology_that_was_closed():
    topology: Any
    with start_engine("postgres", topology="standby") as topology:
        homes = [one.data_dir.parent for one in topology.members]
        topology.failover()
        assert any(users_of(home) for home in homes)
        topology.partition(topology.primary())
    assert [pid for home in homes for pid in users_of(home)] == []


def test_a_replica_that_has_all_there_is_starts_at_once(postgres_engine: PostgresEngine):
    """Nothing is written that it could receive: it was waited for in vain, for a minute."""
    replica = postgres_engine.replica()
    with replica:
        writes = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
        pid = int(postgres_engine.query(writes)[0][0] or 0)
        os.kill(pid, signal.SIGSTOP)  # it logs what runs from time to time
        try:
            postgres_engine.query("CREATE TABLE written (n int)")
            replica.stop()
            replica.start()
            assert replica.query("SELECT count(*) FROM written") == [("0",)]
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("version", "takes_it"),
    [("2.1.7", True), ("3.0.2", True), ("3.0.3", True), ("3.0.4", False), ("3.1", False), ("4.1.0", False)],
)  # fmt: skip
def test_a_patroni_is_known_by_its_version_to_take_the_lead_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, takes_it: bool
):
    """One of these is not woken up after another was promoted, but started again."""
    program = tmp_path / "patroni"
    program.write_text(f'#!/bin/sh\ntest "$1" = --version && echo patroni {version}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert takes_lead_back() is takes_it


@pytest.mark.parametrize("is_its_own", [False, True])
def test_a_pid_file_does_not_choose_what_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_its_own: bool
):
    """It may be an old one, of a pid that is another process by now; or its author means harm."""
    monkeypatch.setattr(PatroniMember, "data_dir", tmp_path)
    member = PatroniMember.__new__(PatroniMember)
    member._process = None
    process = subprocess.Popen(["sleep", "600"], cwd=tmp_path if is_its_own else "/")
    try:
        (tmp_path / "postmaster.pid").write_text(f"{process.pid}\n")
        assert member.pids() == ([process.pid] if is_its_own else [])
    finally:
        process.kill()
        process.wait()
