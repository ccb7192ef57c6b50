"""N4: after a crash some of a session was there and some was not (docs/incidents)."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Refused
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.card import Subject, measure
from holdfast.verify.result_card import Row

ROUNDS = 1
SEED = 4

pytestmark = pytest.mark.usefixtures("can_cut")


def figures(config: str, fault: str) -> Row:
    """Our own store, taking whatever level the engine gives: the policy is what is measured."""
    subject = Subject(config, "redis", "redis", config, None)
    row, _ = measure(subject, fault, SEED, ROUNDS)
    assert row.not_run is None
    assert all(loss.acknowledged > 50 for loss in row.losses)
    return row


def halved(row: Row) -> int:
    return sum(loss.halved for loss in row.losses)


def test_with_snapshots_only_a_sigkill_takes_everything_since_the_last():
    row = figures("rdb-only", "kill")
    assert row.lost == row.acknowledged


def test_sigkill_hides_what_a_policy_of_one_sync_a_second_loses():
    assert figures("aof-everysec", "kill").lost == 0


def test_a_power_cut_shows_it_and_leaves_sessions_half_remembered():
    rows = [figures(c, "power") for c in ("aof-everysec", "mixed", "aof-rewriting", "aof-saving")]
    for row in rows:
        assert row.losing == ROUNDS, row.config
        assert row.window_ms > 0
    assert sum(halved(row) for row in rows) > 0


def test_on_a_policy_that_syncs_before_it_answers_every_session_is_there_whole():
    row = figures("aof-always", "power")
    assert (row.lost, halved(row)) == (0, 0)
    assert row.mechanism == "block"


@pytest.mark.parametrize("config", ["rdb-only", "aof-everysec", "mixed", "aof-rewriting"])
def test_our_store_refuses_a_policy_that_cannot_keep_what_it_says(
    redis_engine_factory: EngineFactory, config: str
):
    with pytest.raises(Refused, match="appendonly|appendfsync"):
        holdfast.connect(redis_engine_factory(config=config).url)


def test_the_page_tells_the_same_policies():
    page = Path(__file__).parents[2] / "docs" / "incidents" / "n4-selective-forgetting.md"
    words = page.read_text("utf-8")
    for config in (
        "rdb-only",
        "aof-everysec",
        "aof-always",
        "mixed",
        "aof-rewriting",
        "aof-saving",
    ):
        assert f"`{config}`" in words
