"""7 isolated: sessions and namespaces never leak into one another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast import LimitExceeded, UsageError, limits
from tests.contract.harness import AnyStore, Opener, say, texts

ODD_IDS = [
    "foo", "foobar", "Foo", "foo ", " foo", "foo\n", "foo\0", "\0", "foo\0bar",
    "a:b", "a::b", "a:b:c", "{a}", "{a}b", "*", "?", "[a]", "%", "%41", "_", "a%b", "a_b",
    "'", '"', "\\", "';--", "a/b", "../a", ".", "a&b=c", "é", "e\u0301", "小丽", "🦑", "\ud83e", "\udd91",
    "\ud83e\udd91", "default", "x" * limits.SESSION_BYTES_MAX,
]  # fmt: skip


def test_ids_of_any_kind_stay_apart(store: AnyStore):
    for number, odd in enumerate(ODD_IDS):
        store.append(odd, say(str(number)))
    for number, odd in enumerate(ODD_IDS):
        assert texts(store.history(odd)) == [str(number)], odd
        assert store.history(odd)[0].seq == 1
    assert sorted(store.sessions(limit=1000)) == sorted(ODD_IDS)


def test_forgetting_one_touches_no_other(store: AnyStore):
    for odd in ODD_IDS:
        store.append(odd, say(odd))
    for gone in ODD_IDS[::2]:
        assert store.forget(gone).messages == 1
    for kept in ODD_IDS[1::2]:
        assert texts(store.history(kept)) == [kept]


def test_namespaces_are_worlds_of_their_own(open_store: Opener):
    names = ["default", "a", "a:", "a:b", "b", "\ud800", "*"]
    stores = {name: open_store(namespace=name) for name in names}
    for name, session in itertools.product(names, ["s", ":s", "b:s"]):
        stores[name].append(session, say(f"{name}/{session}"), key="k")
    for name, session in itertools.product(names, ["s", ":s", "b:s"]):
        assert texts(stores[name].history(session)) == [f"{name}/{session}"]
        assert sorted(stores[name].sessions()) == [":s", "b:s", "s"]
    stores["a"].forget("s")
    assert stores["b"].stat("s").count == 1


def test_an_id_is_text_and_not_empty(store: AnyStore):
    wrongs: list[Any] = ["", 7, None, b"s", ["s"]]
    for session in wrongs:
        for operation in (store.history, store.forget, store.stat):
            with pytest.raises(UsageError, match="session"):
                operation(session)
        with pytest.raises(UsageError, match="session"):
            store.append(session, say("x"))


def test_an_id_above_the_limit_is_refused_and_nothing_is_lost(store: AnyStore):
    store.append("s", say("kept"))
    for session in ("x" * (limits.SESSION_BYTES_MAX + 1), "x" * 10_000_000, "é" * 600):
        with pytest.raises(LimitExceeded, match="1024 bytes"):
            store.append(session, say("x"))
    assert store.sessions() == ["s"]
    assert texts(store.history("s")) == ["kept"]


def test_a_namespace_is_text_and_bounded(open_store: Opener):
    for namespace in ("", 7, "n" * 257):
        with pytest.raises(UsageError, match="namespace"):
            open_store(namespace=namespace)
