"""10 forgotten: deleting removes, and nothing brings it back."""

from __future__ import annotations

import pytest

from holdfast import Conflict, SessionState
from tests.contract.harness import AnyStore, Opener, say, texts


def test_forget_says_how_much_was_erased(store: AnyStore):
    store.append("s", [say("a"), say("b")])
    size = store.stat("s").bytes
    erased = store.forget("s")
    assert (erased.session, erased.messages, erased.bytes) == ("s", 2, size)
    assert texts(store.history("s")) == []
    assert store.history("s").state is SessionState.FORGOTTEN
    assert store.sessions() == []


def test_forgetting_twice_or_what_never_was_erases_nothing(store: AnyStore):
    store.append("s", say("a"))
    store.forget("s")
    assert store.forget("s").messages == 0
    assert store.forget("never").messages == 0
    assert store.stat("never").state is SessionState.NEVER


def test_a_late_retry_does_not_bring_a_session_back(open_store: Opener):
    with open_store() as store:
        first = store.append("s", [say("a"), say("b")], key="k")
        store.forget("s")
    store = open_store()
    assert store.append("s", [say("a"), say("b")], key="k") == first
    assert texts(store.history("s")) == []
    assert store.history("s").state is SessionState.FORGOTTEN


def test_a_late_write_that_expects_what_was_there_is_refused(store: AnyStore):
    store.append("s", [say("question"), say("secret")])
    read = store.history("s")
    store.forget("s")
    with pytest.raises(Conflict):
        store.append("s", say("answer about the secret"), expect=read.last)
    with pytest.raises(Conflict):
        store.rewrite("s", say("summary of the secret"), expect=read.last)
    assert store.history("s").state is SessionState.FORGOTTEN


def test_a_new_beginning_has_nothing_of_the_old_in_it_and_numbers_go_on(store: AnyStore):
    store.append("s", [say("a"), say("b")], ttl_s=60)
    store.forget("s")
    ack = store.append("s", say("c"))
    assert ack.first == 3
    assert texts(store.history("s")) == ["c"]
    assert texts(store.history("s", before=3)) == []
    assert store.stat("s").expires_at is None
    assert store.history("s").state is SessionState.LIVE


def test_a_restart_brings_nothing_back(open_store: Opener):
    with open_store() as store:
        store.append("s", say("a"))
        store.forget("s")
    assert texts(open_store().history("s")) == []
    assert open_store().stat("s").last == 1


def test_no_copy_is_left_in_the_engine_s_files(open_store: Opener):
    store = open_store()
    secret = "the name is Xiao Li, and nobody may know"
    store.append("keep", say("other things"))
    store.append("s", [say(secret * 200), say("x")])
    harness = open_store.harness
    assert not harness.scrubs or harness.leftovers(secret.encode()) != []
    assert store.forget("s").scrubbed is harness.scrubs, "it says what it did, and no more"
    assert not harness.scrubs or harness.leftovers(secret.encode()) == []
    assert texts(store.history("keep")) == ["other things"]
