"""Every broken store is caught for the promise that it breaks; sound ones raise no alarm."""

from __future__ import annotations

import pytest

from holdfast.verify.judge import Verdict
from holdfast.verify.scenarios.power import why_not
from tests.verify.check.checking import broken, run, tell

ON_SQLITE = {
    "lost_update": ("durable", "kill-clients"),
    "torn_batch": ("atomic", "concurrency", "kill-clients"),  # whoever looks in the right moment
    "open_call": ("atomic", "tool-turns"),
    "trims_the_end": ("atomic", "tool-turns"),
    "ack_before_write": ("durable", "kill-clients"),
    "lossy": ("faithful", "odd-content"),
    "resurrects": ("forgotten", "late-retry"),
    "forgets_by_prefix": ("isolated", "odd-ids"),
    "oldest_first": ("snapshot", "concurrency"),
    "retry_duplicates": ("exactly-once", "concurrency"),
    "skips_damaged": ("faithful", "damage"),
    "opaque_and_brittle": ("faithful", "damage"),
    "cannot_read_old_records": ("faithful", "old-records"),
}
ON_REDIS = {
    "swallows": ("loud", "kill"),
    "never_reconnects": ("loud", "network"),
    "claims_not_done": ("loud", "lost-ack"),
    "false_ack": ("durable", "connections"),
    "keyed_by_version": ("durable", "upgrade"),
    "hides_all": ("faithful", "none"),
}


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_broken_store_on_sqlite_is_caught_for_its_own_promise(name: str):
    promise, *scenarios = ON_SQLITE[name]
    result = run(name, seed=7, promises=(promise,), faults=("kill",), time_s=12)
    assert result.promises[promise].verdict is Verdict.BROKEN, tell(result)
    found = result.promises[promise].evidence["scenarios"]
    assert "broken" in [found[scenario]["verdict"] for scenario in scenarios], found
    assert result.exit_code == 1
    assert result.promises[promise].because


@pytest.mark.parametrize("name", ON_REDIS)
def test_a_broken_store_on_redis_is_caught_for_its_own_promise(name: str):
    promise, fault = ON_REDIS[name]
    result = run(name, "redis", seed=7, promises=(promise,), faults=(fault,), time_s=10)
    assert result.promises[promise].verdict is Verdict.BROKEN, tell(result)


def test_a_store_that_refuses_for_ever_although_nothing_is_wrong_is_not_loud_but_broken():
    result = run("shuts_out", seed=7, promises=("loud", "ordered"), faults=("none",), time_s=5)
    assert result.promises["loud"].verdict is Verdict.BROKEN, tell(result)
    assert "nothing was wrong" in result.promises["loud"].because


def test_a_redis_that_keeps_nothing_is_caught_by_a_kill():
    result = run(
        "sound_redis", "redis", config="no-persistence", seed=3, promises=("durable",),
        faults=("kill",), time_s=8,
    )  # fmt: skip
    assert "durable" in broken(result), tell(result)


def test_a_sound_user_store_on_sqlite_raises_no_alarm():
    result = run("sound", seed=11, time_s=20)
    assert result.verdict is Verdict.KEPT, tell(result)


def test_a_sound_user_store_on_redis_raises_no_alarm():
    result = run("sound_redis", "redis", seed=11, time_s=40)
    assert result.verdict is Verdict.KEPT, tell(result)
    landed = {name for name, tally in result.faults.items() if tally.landed}
    power = set() if why_not() else {"power"}
    assert landed == power | {
        "kill", "pause", "restart", "upgrade", "lost-ack", "network", "connections", "disk", "damage",
        "power-explore", "crash-at-line", "clock",
    }  # fmt: skip


def test_an_async_store_without_keys_is_held_to_what_it_claims():
    promises = ("ordered", "atomic", "exactly-once")
    result = run("sound_async", seed=5, promises=promises, faults=("kill",), time_s=8)
    assert result.promises["exactly-once"].verdict is Verdict.NOT_CLAIMED
    assert result.promises["ordered"].verdict is Verdict.KEPT, tell(result)


def test_a_store_that_takes_no_call_without_its_result_has_none_that_is_open():
    result = run("refuses_open_calls", seed=5, promises=("atomic",), faults=("kill",), time_s=5)
    assert result.promises["atomic"].verdict is Verdict.KEPT, tell(result)
    assert "tool-turns" not in result.promises["atomic"].evidence["scenarios"]


def test_our_store_hands_no_model_a_call_without_its_result():
    result = run("sqlite", None, seed=5, promises=("atomic",), faults=("kill",), time_s=5)
    found = result.promises["atomic"].evidence["scenarios"]["tool-turns"]
    assert found["verdict"] == "kept", tell(result)
    assert any("between a call and its result" in seen for seen in result.faults["kill"].seen)


def test_a_store_that_claims_retries_and_takes_no_key_is_not_called_kept():
    result = run("keyless", seed=5, promises=("exactly-once",))
    assert result.promises["exactly-once"].verdict is Verdict.UNKNOWN, tell(result)
    assert "key" in result.promises["exactly-once"].because


# Twenty seeds of every sound store are in tests/twins/test_seeds.py; these are whole checks.
@pytest.mark.parametrize("seed", range(1))
def test_our_sqlite_store_is_kept_for_every_seed(seed: int):
    result = run("sqlite", None, seed=seed, time_s=15)
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.counts["lost"] == 0
    assert result.counts["acknowledged"] > 100
    assert result.counts["read_back"] > 100
    assert all(result.faults[name].landed for name in ("kill", "pause", "disk"))
