"""Causes are likely ones, by what was seen: the engine's setting, the fault, rivals, the promise."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.verify.report.causes import likely
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
        (SQLITE, anomaly("hole"), "the store itself dropped it", "Append instead"),
    ],
)
def test_a_loss_is_explained_by_what_was_seen(
    environment: dict[str, Any], found: dict[str, Any], cause: str, change: str
):
    says = likely("durable", environment, found)
    assert cause in says.cause
    assert change in says.change


def test_a_setting_that_does_not_lose_is_not_blamed():
    says = likely("durable", on("redis", "aof-always"), anomaly("lost", "kill"))
    assert "appendonly" not in says.cause


def test_every_promise_has_a_cause_of_its_own_and_an_unknown_one_an_honest_answer():
    said = {promise: likely(promise, {}).cause for promise in PROMISES if promise != "durable"}
    assert len({said[p] for p in said if p != "snapshot"}) == len(said) - 1
    assert "cannot tell why" in likely("eternal", {"engine": None}).cause
