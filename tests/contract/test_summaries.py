"""A summary lives exactly as long as its session; where it is gone all the same, it is made again."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from holdfast import SessionState
from holdfast.commands import SUMMARIES
from tests.contract.harness import AnyStore, Opener, say, texts
from tests.recall.models import Counting, Letters


class Summarizer(Counting):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def summarize(self, before: str, messages: Any) -> str:
        self.calls += 1
        return super().summarize(before, messages)


@pytest.fixture
def summarizer() -> Summarizer:
    return Summarizer()


@pytest.fixture
def store(open_store: Opener, summarizer: Summarizer) -> AnyStore:
    return open_store(embedder=Letters(), summarizer=summarizer, background_indexing=False)


def parts(store: AnyStore) -> dict[bytes, dict[str, Any]]:
    """Of each log in an export, the line that begins it."""
    lines = [json.loads(line) for line in store.export()]
    return {name_of(line): line for line in lines if "state" in line}


def name_of(line: dict[str, Any]) -> bytes:
    if "session" in line:
        return str(line["session"]).encode()
    return base64.b64decode(line["session_b64"])


def turns(count: int) -> list[Any]:
    return [say(f"turn {number} of many") for number in range(1, count + 1)]


@pytest.mark.parametrize("then", [7200.0, 60.0, None], ids=["longer", "shorter", "for ever"])
@pytest.mark.parametrize("first", [3600.0, None], ids=["expiring", "not expiring"])
def test_a_summary_expires_when_its_session_does(
    store: AnyStore, first: float | None, then: float | None
):
    store.append("u", turns(30), ttl_s=first)
    assert store.summarize("u", keep=10) is not None
    for ttl_s in (then, then):
        store.append("u", say("more"), ttl_s=ttl_s)
        found = parts(store)
        beside, session = found[SUMMARIES + b"u"], found[b"u"]
        assert (beside["expires_at_ms"], beside["ttl_s"]) == (session["expires_at_ms"], ttl_s)
        assert (beside["state"], beside["messages"]) == ("live", 1)


def test_an_append_with_the_session_s_own_time_refreshes_its_summary_too(store: AnyStore):
    store.append("u", turns(30), ttl_s=3600)
    assert store.summarize("u", keep=10) is not None
    before = parts(store)[b"u"]["expires_at_ms"]
    store.append("u", say("more"), key="k")
    found = parts(store)
    assert found[b"u"]["expires_at_ms"] >= before
    assert found[SUMMARIES + b"u"]["expires_at_ms"] == found[b"u"]["expires_at_ms"]


@pytest.mark.parametrize("first", [3600.0, None], ids=["expiring", "not expiring"])
def test_a_summary_of_what_was_rewritten_does_not_outlive_its_session(
    open_store: Opener, store: AnyStore, first: float | None
):
    """A rewrite does not lengthen the life of a summary of what it removed; it may shorten it."""
    other = open_store(ttl_s=60)
    for then in ("rewrite", "append after a rewrite"):
        session = f"u, {then}"
        store.append(session, turns(30), ttl_s=first)
        assert store.summarize(session, keep=10) is not None
        if then == "rewrite":
            other.rewrite(session, turns(3))
        else:
            store.rewrite(session, turns(3))
            other.append(session, say("more"))
        found = parts(store)
        beside, kept = found[SUMMARIES + session.encode()], found[session.encode()]
        assert beside["expires_at_ms"] is not None
        assert beside["expires_at_ms"] <= kept["expires_at_ms"]


def test_what_expired_with_its_session_stays_gone_when_the_session_begins_anew(store: AnyStore):
    store.append("u", turns(30), ttl_s=3600)
    assert store.summarize("u", keep=10) is not None
    store.append("u", say("last"), ttl_s=0.05)
    until_s = time.monotonic() + 10
    while store.stat("u").state is not SessionState.EXPIRED:
        assert time.monotonic() < until_s
    store.append("u", say("anew"), ttl_s=3600)
    beside = parts(store)[SUMMARIES + b"u"]
    assert (beside["state"], beside["messages"]) == ("expired", 0)
    assert texts(store.context("u", "turn", tokens=500).turns) == ["anew"]


def with_its_summary_gone(store: AnyStore) -> list[str]:
    """An export as an earlier release could leave it: the summary expired before its session."""
    kept: list[str] = []
    skip = 0
    for line in store.export():
        told = json.loads(line)
        if skip:
            skip -= 1
            continue
        if "state" in told and name_of(told).startswith(SUMMARIES):
            skip = told["messages"]
            told |= {"state": "expired", "messages": 0, "expires_at_ms": None}
        kept.append(json.dumps(told))
    return kept


def test_a_context_is_made_although_the_summary_is_gone_and_its_key_is_used(
    open_store: Opener, summarizer: Summarizer
):
    settings = {"embedder": Letters(), "summarizer": summarizer, "background_indexing": False}
    old = open_store(namespace="old", **settings)
    old.append("u", turns(60))
    assert old.context("u", "turn", tokens=300).summary is not None
    calls = summarizer.calls
    lines = with_its_summary_gone(old)
    store = open_store(namespace="new", **settings)
    store.load(lines)
    context = store.context("u", "turn", tokens=300)
    assert context.summary is not None
    assert context.left_out == ()
    assert summarizer.calls == 2 * calls, "as often as for one that never had a summary"
    assert store.context("u", "turn", tokens=300).summary == context.summary
    assert summarizer.calls == 2 * calls, "it was not kept"


def test_a_session_that_is_forgotten_while_it_is_summarized_is_an_empty_context(
    open_store: Opener, store: AnyStore, summarizer: Summarizer
):
    store.append("u", turns(60))
    other = Opener(open_store.harness, "sync")()

    def forget() -> None:
        other.forget("u")

    summarizer.before = forget
    context = store.context("u", "turn", tokens=300)
    other.close()
    assert context.messages == ()
    assert summarizer.calls == 1
