"""Causes are likely ones, by what was seen: the engine's setting, the fault, rivals, the promise."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.report.causes import likely, of_promise
from tests.verify.report.results import PROMISES


def on(kind: str, config: str) -> dict[str, Any]:
    return {"engine": {"kind": kind, "config": config}}


def anomaly(name: str, *faults: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "faults": [{"name": fault} for fault in faults], **more}


RIVAL = [{"f": "append"}]
SQLITE = on("sqlite", "default")


@pytest.mark.parametrize(
    ("environment", "found", "cause", "change"),
    [
        (on("redis", "rdb-only"), anomaly("lost", "kill"), "RDB snapshot", "appendfsync always"),
        (
            on("valkey", "no-persistence"),
            anomaly("rollback", "kill"),
            "nothing to disk",
            "appendonly",
        ),
        (on("redis", "aof-everysec"), anomaly("lost", "power"), "once a second", "WAITAOF"),
        (on("postgres", "fsync-off"), anomaly("lost", "power"), "before its log", "fsync = on"),
        (SQLITE, anomaly("lost", nearby=RIVAL), "lost update", "in one step"),
        (SQLITE, anomaly("lost", "kill"), "before the write was in the engine", "confirmed"),
        (
            SQLITE,
            anomaly("lost", "kill", nearby=RIVAL, scenario="kill-clients", writer_went_on=True),
            "lost update",
            "in one step",
        ),
        (
            SQLITE,
            anomaly("lost", "kill", nearby=RIVAL, scenario="kill-clients", writer_went_on=False),
            "before the write was in the engine",
            "confirmed",
        ),
        (on("redis", "aof-always"), anomaly("lost", "connections"), "swallowed", "error"),
        (SQLITE, anomaly("rollback", fault="disk"), "swallowed", "error"),
        (SQLITE, anomaly("rollback"), "the store itself dropped it", "Append instead"),
        (SQLITE, anomaly("lost", "power"), "synchronous level", "its directory"),
        ({"engine": None}, anomaly("lost", "power-explore"), "was not synced", "fsync"),
        (
            on("postgres", "default"),
            anomaly("lost", "power"),
            "own session turned that off",
            "COMMIT has returned",
        ),
    ],
)
def test_a_loss_is_explained_by_what_was_seen(
    environment: dict[str, Any], found: dict[str, Any], cause: str, change: str
):
    says = likely("durable", environment, found)
    assert cause in says.cause
    assert change in says.change


@pytest.mark.parametrize(
    ("promise", "found", "cause"),
    [
        ("faithful", anomaly("doubled"), "sent twice by the driver"),
        ("exactly-once", anomaly("duplicate", "lost-ack"), "sent it again after a lost reply"),
        ("exactly-once", anomaly("duplicate"), "taken for a new append"),
        ("isolated", anomaly("leak", "pause"), "used again after a time-out"),
        ("isolated", anomaly("leak"), "fall together"),
        ("snapshot", anomaly("hole"), "pages that shift"),
        ("expiring", anomaly("expired-late"), "Reads refresh"),
        ("atomic", anomaly("torn", "power"), "the write that was not synced"),
        ("atomic", anomaly("torn", "power-explore"), "written in several steps"),
        ("atomic", anomaly("torn", "kill"), "written one by one"),
    ],
)
def test_a_cause_follows_from_the_root_and_the_fault(
    promise: str, found: dict[str, Any], cause: str
):
    assert cause in likely(promise, SQLITE, found).cause


def test_a_cause_knows_whose_store_it_is():
    lost = anomaly("lost", "kill")
    user, framework, ours = (
        likely("durable", {**SQLITE, "store": store}, lost)
        for store in ("user", "framework", "holdfast")
    )
    assert user.cause == framework.cause
    assert "report it there" in framework.change
    assert "report it there" not in user.change
    assert "defect of Holdfast" in ours.cause
    everysec = {**on("redis", "aof-everysec"), "store": "holdfast"}
    assert "once a second" in likely("durable", everysec, anomaly("lost", "power")).cause


def test_the_cause_of_a_promise_is_that_of_its_first_root():
    echo = anomaly("stale", follows_from=["torn"])
    one = {"anomalies": [echo, anomaly("torn")], "evidence": {}}
    assert "one by one" in of_promise("atomic", one, SQLITE).cause


def test_a_setting_that_does_not_lose_is_not_blamed():
    says = likely("durable", on("redis", "aof-always"), anomaly("lost", "kill"))
    assert "appendonly" not in says.cause


@pytest.mark.parametrize(
    "fault", ["power", "failover", "switchover", "partition", "reshard", "clock"]
)
def test_an_engine_that_was_struck_is_never_called_unharmed(fault: str):
    says = likely("durable", on("redis", "aof-always"), anomaly("lost", fault))
    assert "Nothing was wrong with the engine" not in says.cause


def test_what_a_new_primary_lacks_was_acknowledged_before_its_replica_had_it():
    says = likely("durable", on("redis", "aof-always"), anomaly("lost", "failover"))
    assert "before a replica had" in says.cause


def test_every_promise_has_a_cause_of_its_own_and_an_unknown_one_an_honest_answer():
    said = {promise: likely(promise, {}).cause for promise in PROMISES if promise != "durable"}
    assert len({said[p] for p in said if p != "snapshot"}) == len(said) - 1
    assert "cannot tell why" in likely("eternal", {"engine": None}).cause
