"""9 expiring: a session expires as a whole, by the engine's clock, not early and not late."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import SessionState, UsageError
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.waiting import wait_until

TTL_S = 0.3
LATE_S = 0.1
"""How late the engine's clock may be read; a slow machine only makes a read begin later."""


def test_a_session_expires_as_a_whole_and_on_time(store: AnyStore):
    store.append("s", [say(str(turn)) for turn in range(5)], ttl_s=TTL_S)
    before = time.monotonic()
    store.append("s", say("5"), ttl_s=TTL_S)
    after = time.monotonic()
    sizes = set()

    def gone() -> bool:
        began = time.monotonic()
        seen = len(store.history("s"))
        sizes.add(seen)
        assert not seen or began <= after + TTL_S + LATE_S, "it is shown although its time was over"
        return seen == 0

    wait_until(gone)
    assert sizes <= {0, 6}, "part of a session expired"
    assert time.monotonic() - before >= TTL_S
    assert store.history("s").state is SessionState.EXPIRED
    assert store.stat("s").state is SessionState.EXPIRED
    assert store.stat("s").count == 0
    assert store.sessions() == []


def test_each_write_starts_the_time_anew(store: AnyStore):
    assert any(_lives_on(store, f"s{number}") for number in range(10)), "never written to in time"


def _lives_on(store: AnyStore, session: str) -> bool:
    """Whether it was kept past its time by writes; False if the machine was too slow to say."""
    begin = written = time.monotonic()
    store.append(session, say("0"), ttl_s=TTL_S)
    turns = 1
    while time.monotonic() - begin < 2.5 * TTL_S:
        seen = len(store.history(session))
        if time.monotonic() - written >= TTL_S:
            return False
        assert seen == turns, "it expired although it was written to in time"
        wait_until(lambda: time.monotonic() > begin + turns * TTL_S / 3)  # noqa: B023
        before, written = written, time.monotonic()
        store.append(session, say(str(turns)))
        turns += 1
        if time.monotonic() - before >= TTL_S:
            return False
    wait_until(lambda: store.history(session).state is SessionState.EXPIRED)
    return True


def test_the_store_s_own_time_to_live_applies_unless_a_write_names_another(open_store: Opener):
    store = open_store(ttl_s=3600)
    store.append("default", say("x"))
    store.append("shorter", say("x"), ttl_s=60)
    store.append("never", say("x"), ttl_s=None)
    now = datetime.now(UTC)
    for session, ttl_s in (("default", 3600), ("shorter", 60)):
        stat = store.stat(session)
        assert stat.ttl_s == ttl_s
        assert stat.expires_at is not None
        assert abs(stat.expires_at - now - timedelta(seconds=ttl_s)) < timedelta(seconds=5)
    assert store.stat("never").expires_at is None
    store.append("shorter", say("y"))
    assert store.stat("shorter").ttl_s == 3600, "the store's own time applies again"


def test_a_session_keeps_its_own_time_for_writers_that_name_none(open_store: Opener):
    open_store(ttl_s=3600).append("s", say("x"))
    before = open_store().stat("s").expires_at
    open_store().append("s", say("y"))
    stat = open_store().stat("s")
    assert stat.ttl_s == 3600
    assert stat.expires_at is not None
    assert before is not None
    assert stat.expires_at > before, "the refresh is part of the write"


def test_none_takes_the_time_to_live_away(store: AnyStore):
    store.append("s", say("x"), ttl_s=60)
    store.append("s", say("y"), ttl_s=None)
    assert store.stat("s").expires_at is None
    assert store.stat("s").ttl_s is None


def test_an_append_after_expiry_begins_anew_and_the_numbers_go_on(store: AnyStore):
    store.append("s", [say("old"), say("older")], key="k", ttl_s=0.05)
    wait_until(lambda: len(store.history("s")) == 0)
    ack = store.append("s", say("new"), expect=0, ttl_s=3600)
    assert ack.first == 3
    assert texts(store.history("s")) == ["new"]
    assert store.append("s", say("old"), key="k").first == 1, "a retry from before adds nothing"
    assert texts(store.history("s")) == ["new"]


def test_what_expired_and_nobody_looked_at_is_gone_when_the_next_message_comes(store: AnyStore):
    """A read would note that it has expired; here the write itself must see it."""
    store.append("s", say("old"), ttl_s=0.05)
    over_s = time.monotonic() + 0.05 + LATE_S
    wait_until(lambda: time.monotonic() > over_s)
    assert store.append("s", say("new"), ttl_s=3600).first == 2
    assert texts(store.history("s")) == ["new"]


def test_rewrite_refreshes_too(open_store: Opener):
    store = open_store(ttl_s=3600)
    store.append("s", say("x"), ttl_s=60)
    store.rewrite("s", say("y"))
    assert store.stat("s").ttl_s == 3600


def test_reading_does_not_refresh(store: AnyStore):
    store.append("s", say("x"), ttl_s=60)
    before = store.stat("s").expires_at
    store.history("s")
    assert store.stat("s").expires_at == before


def test_a_time_to_live_that_makes_no_sense_is_refused(open_store: Opener):
    store = open_store()
    wrongs: list[Any] = [0, -1, 0.0001, float("nan"), float("inf"), "60", True, 10**12]
    for ttl_s in wrongs:
        with pytest.raises(UsageError, match="ttl_s"):
            store.append("s", say("x"), ttl_s=ttl_s)
        with pytest.raises(UsageError, match="ttl_s"):
            open_store(ttl_s=ttl_s)
    assert store.stat("s").state is SessionState.NEVER
