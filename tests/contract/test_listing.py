"""Listing by cursor, and the state of one session."""

from __future__ import annotations

import pytest

from holdfast import LimitExceeded, SessionState, UsageError
from tests.contract.harness import AnyStore, Opener, say


def test_sessions_are_listed_in_order_page_by_page(store: AnyStore):
    names = [f"user-{number:03}" for number in range(25)]
    for name in reversed(names):
        store.append(name, say("x"))
    assert store.sessions(limit=10) == names[:10]
    assert store.sessions(limit=10, after=names[9]) == names[10:20]
    assert store.sessions(limit=10, after=names[19]) == names[20:]
    assert store.sessions(after=names[-1]) == []
    assert store.sessions() == names


def test_a_prefix_is_taken_literally(store: AnyStore):
    for name in ("a", "ab", "a%", "a%b", "a_c", "A", "b", "a\U0010ffff"):
        store.append(name, say("x"))
    assert store.sessions(prefix="a%") == ["a%", "a%b"]
    assert store.sessions(prefix="a_") == ["a_c"]
    assert set(store.sessions(prefix="a")) == {"a", "ab", "a%", "a%b", "a_c", "a\U0010ffff"}
    assert store.sessions(prefix="zzz") == []


def test_stat_counts_messages_and_bytes(store: AnyStore):
    store.append("s", [say("a"), say("b")])
    one = store.stat("s")
    assert (one.state, one.last, one.count) == (SessionState.LIVE, 2, 2)
    assert one.bytes > 0
    store.append("s", say("x" * 1000))
    two = store.stat("s")
    assert two.bytes - one.bytes > 1000
    store.rewrite("s", [say("a")])
    three = store.stat("s")
    assert (three.last, three.count) == (4, 1)
    assert three.bytes < one.bytes


def test_stat_of_what_never_was(store: AnyStore):
    stat = store.stat("never")
    assert (stat.state, stat.last, stat.count, stat.bytes) == (SessionState.NEVER, 0, 0, 0)
    assert (stat.ttl_s, stat.expires_at) == (None, None)


def test_bad_arguments_are_refused(store: AnyStore):
    for arguments in ({"limit": -1}, {"prefix": 7}, {"after": b"x"}, {"limit": "3"}):
        with pytest.raises(UsageError):
            store.sessions(**arguments)
    with pytest.raises(LimitExceeded):
        store.sessions(limit=10_001)


def test_listing_is_fresh_in_another_client(open_store: Opener):
    one, two = open_store(), open_store()
    one.append("s", say("x"))
    assert two.sessions() == ["s"]
