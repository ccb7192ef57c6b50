"""The engine under a store changes, fills up or ages; records are damaged or from yesterday."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import codec, connect
from holdfast.model import Durability
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.judge import Verdict
from holdfast.verify.records import VersionZero, _records_of
from holdfast.verify.scenarios.change import versions_around
from tests.verify.check.checking import REDIS_STORES, Notes, run, tell

FAITHFUL: dict[str, Any] = {"promises": ("faithful",), "faults": ("none",), "seed": 5, "time_s": 10}


def test_a_policy_that_is_changed_at_a_restart_and_loses_is_told_with_its_cause():
    options = CheckOptions(
        target=f"{REDIS_STORES}:sound_redis", engine="redis", config="rdb-only", seed=3,
        promises=("durable",), faults=("restart",), time_s=10,
    )  # fmt: skip
    notes = Notes()
    result = check(options, notes)
    assert dict(notes.ended) == {"restart-engine": "kept", "restart-otherwise": "broken"}
    words = result.promises["durable"].because
    assert "restarted as aof-always instead of rdb-only" in words
    assert "CONFIG SET appendonly yes" in words
    assert result.counts["lost"] > 0


@pytest.mark.parametrize("target", ["redis", "postgres"])
def test_a_change_between_sound_policies_loses_nothing(target: str):
    result = run(
        target, None, seed=3, promises=("durable",), faults=("restart",), time_s=15, require="MEMORY"
    )  # fmt: skip
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    found = result.promises["durable"].evidence["scenarios"]
    assert found["restart-otherwise"]["acknowledged"] > 0
    assert result.faults["restart"].landed == 3  # once as it is, there, and back


def test_records_of_redis_are_read_by_valkey():
    asked = {"seed": 3, "promises": ("durable",), "faults": ("upgrade",), "time_s": 15}
    result = run("valkey", None, require="MEMORY", **asked)
    assert result.promises["durable"].verdict is Verdict.KEPT, tell(result)
    assert "redis 7" in result.promises["durable"].because
    assert "to valkey 9" in result.promises["durable"].because


def test_an_upgrade_that_cannot_be_made_is_said_aloud():
    result = run("postgres", None, seed=3, promises=("durable",), faults=("upgrade",), time_s=5)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN
    assert "only version" in str(result.faults["upgrade"].not_run)


def test_an_upgrade_is_into_the_version_under_test_where_one_is_older():
    old, new = choose_binary("redis", "6.2"), choose_binary("redis", "7")
    assert versions_around(new) == (old, new)
    assert versions_around(old) == (old, new)
    assert versions_around(choose_binary("valkey", "9")) == (new, choose_binary("valkey", "9"))


def test_a_full_disk_of_the_engine_is_no_ack():
    result = run(
        "false_ack", "redis", seed=7, promises=("durable",), faults=("disk",), time_s=10
    )  # fmt: skip
    assert result.promises["durable"].verdict is Verdict.BROKEN, tell(result)


@pytest.mark.parametrize("target", ["redis", "postgres"])
def test_our_store_is_loud_while_the_disk_of_its_engine_is_full(target: str):
    asked = {"promises": ("durable", "loud"), "faults": ("disk",), "time_s": 20}
    result = run(target, None, seed=7, **asked)
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.faults["disk"].landed >= 1
    assert result.promises["loud"].evidence["scenarios"]["disk-full-engine"]["errors"] > 0


def test_an_engine_that_answers_without_writing_has_no_disk_to_fill():
    asked = {"promises": ("loud",), "faults": ("disk",), "config": "no-persistence", "time_s": 5}
    result = run("redis", None, seed=7, **asked)
    assert result.promises["loud"].verdict is Verdict.UNKNOWN
    assert "without writing" in str(result.faults["disk"].not_run)


def test_a_store_may_bring_the_way_to_damage_its_records():
    result = run("opaque", **FAITHFUL)
    assert result.promises["faithful"].verdict is Verdict.KEPT, tell(result)
    assert "a damaged record, which was named" in result.promises["faithful"].because
    assert result.faults["damage"].landed == 1


def test_without_a_way_to_damage_a_record_kept_says_that_this_was_not_tried():
    result = run("opaque_without_a_hook", **FAITHFUL)
    assert result.promises["faithful"].verdict is Verdict.KEPT, tell(result)
    words = result.promises["faithful"].because
    assert "Not put to the test: " in words
    assert "damage (how this store keeps its records is not known" in words
    assert "Target(tamper=…)" in str(result.faults["damage"].not_run)
    assert len(result.promises["faithful"].evidence["not_tested"]) == 2


def test_a_store_that_reads_what_its_previous_release_wrote_is_kept():
    result = run("reads_old_records", **FAITHFUL)
    assert "14 records of the previous release" in result.promises["faithful"].because, tell(result)


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_records_of_version_0_are_really_that_and_are_read(kind: str):
    with start_engine(kind, storage="disk") as engine:
        old = VersionZero(engine.url, "default")
        old.append("s", [{"id": "1", "role": "user", "content": "long ago", "name": "Li"}])
        old.close()
        with _records_of(engine.url, "default", b"s") as records:
            assert [record for record, _ in records] == [
                b'{"role":"user","content":"long ago","name":"Li"}'
            ]
            assert codec.record_version(records[0][0]) == 0
        with connect(engine.url, require=Durability.MEMORY) as store:
            (message,) = store.history("s")
            assert message.to_openai() == {"role": "user", "content": "long ago", "name": "Li"}
