"""12 recallable: whatever is in the log can be found by meaning; the index never drifts from it."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    Conflict,
    EngineUnreachable,
    Message,
    Refused,
    SessionState,
    Source,
    UsageError,
)
from holdfast.recall.index_commands import Entry, Extend, ReadPosition
from tests.contract.harness import AnyStore, Harness, Opener, say, texts
from tests.recall.models import Counting, Letters, wordllama
from tests.waiting import wait_until


@pytest.fixture
def store(open_store: Opener) -> AnyStore:
    return open_store(embedder=Letters())


def found(store: AnyStore, scope: str, query: str, **settings: Any) -> list[str]:
    return [hit.text for hit in store.recall(scope, query, **settings)]


def test_what_was_said_and_remembered_is_found_by_meaning_and_can_be_quoted(open_store: Opener):
    store = open_store(embedder=wordllama())
    store.append("u", [say("I live in Oslo with two cats"), say("The weather is grey today")])
    kept = store.remember("u", "The user is allergic to peanuts", meta={"topic": "food"})
    [pet] = store.recall("u", "any pets, such as a dog or a cat?", k=1)
    assert (pet.kind, pet.text) == ("message", "I live in Oslo with two cats")
    assert store.history("u", after=pet.seq - 1, limit=1)[0].content == pet.text
    [food] = store.recall("u", "what food causes an allergic reaction?", k=1)
    assert (food.kind, food.seq, food.session) == ("memory", kept.first, "u")
    assert (food.meta, food.source) == ({"topic": "food"}, None)
    assert store.recall("u", "peanuts").behind == 0
    assert len(store.recall("u", "peanuts", k=2)) == 2


def test_words_find_what_no_vector_knows_in_any_script(open_store: Opener):
    store = open_store(embedder=Letters(dimension=8))  # eight numbers tell next to nothing apart
    for text in ("我对海鲜过敏", "Rechnung HS-20417 ist offen", "下周二打疫苗", "Ticket OPS-881"):
        store.remember("u", text)
    for number in range(40):
        store.remember("u", f"nothing of interest happened on day {number}")
    assert found(store, "u", "用户对什么海鲜过敏？", k=1) == ["我对海鲜过敏"]
    assert found(store, "u", "was OPS-881 closed?", k=1) == ["Ticket OPS-881"]


def test_a_memory_is_no_message_and_has_numbers_of_its_own(store: AnyStore):
    store.append("u", say("one"))
    ack = store.remember("u", "a memory")
    assert (ack.session, ack.first, ack.last) == ("u", 1, 1)
    assert ack.durability == store.durability
    assert store.append("u", say("two"), expect=1).first == 2
    assert texts(store.history("u")) == ["one", "two"]
    assert store.stat("u").count == 2
    store.remember("only memories", "x")
    assert store.sessions() == ["u"]
    assert store.stat("only memories").state is SessionState.NEVER


def test_a_retry_is_kept_once_and_so_is_the_same_text_from_the_same_source(store: AnyStore):
    first = store.remember("u", "likes tea", key="k")
    assert store.remember("u", "likes tea", key="k") == first
    made = store.remember("u", "lives in Oslo", source=Source("chat-7", 3, 4))
    assert store.remember("u", "lives in Oslo", source=Source("chat-7", 3, 4)).repeated
    assert made.first == 2
    assert sorted(found(store, "u", "tea Oslo")) == ["likes tea", "lives in Oslo"]
    [hit] = store.recall("u", "lives in Oslo", k=1)
    assert hit.source == Source("chat-7", 3, 4)


def test_forget_removes_messages_memories_summaries_and_the_index(open_store: Opener):
    store = open_store(embedder=Letters())
    store.append("u", [say(f"the secret number {n}") for n in range(30)])
    store.remember("u", "a secret memory", key="k")
    assert store.summarize("u", keep=5) is not None
    store.remember("other", "stays")
    assert found(store, "u", "secret")
    erased = store.forget("u")
    assert (erased.messages, erased.memories) == (30, 2)
    assert erased.scrubbed is open_store.harness.scrubs
    assert (found(store, "u", "secret"), store.index_lag("u")) == ([], 0)
    assert store.remember("u", "a secret memory", key="k").repeated, "a late retry"
    assert store.context("u", "secret", tokens=500).messages == ()
    assert found(store, "other", "stays") == ["stays"]
    store.append("u", say("a new beginning"))
    assert found(store, "u", "secret") == ["a new beginning"]


def test_export_carries_memories_and_summaries_and_they_are_found_elsewhere(open_store: Opener):
    store, other = open_store(embedder=Letters()), open_store(namespace="x", embedder=Letters())
    store.append("u", [say(f"turn {n}") for n in range(30)])
    store.remember("u", "likes tea", meta={"sure": True})
    store.remember("memories only", "x")
    store.summarize("u", keep=5)
    lines = list(store.export())
    loaded = other.load(lines)
    assert (loaded.sessions, loaded.messages, loaded.memories) == (1, 30, 3)
    assert other.load(lines).present == 4
    assert list(other.export()) == lines
    [hit] = other.recall("u", "likes tea", k=1)
    assert (hit.text, hit.meta) == ("likes tea", {"sure": True})
    assert other.forget("u").memories == 2


def test_another_model_means_a_rebuild_and_vectors_are_never_mixed(open_store: Opener):
    with open_store(embedder=Letters()) as store:
        store.append("u", [say("tea"), say("coffee")])
        assert store.wait_for("u") == 2
        assert store.index_lag("u") == 0
    for other in (Letters(name="another"), Letters(dimension=24), Letters()):
        with open_store(embedder=other) as store:
            assert store.index_lag("u") == 2, "nothing of the old model counts"
            recalled = store.recall("u", "coffee", k=1)
            assert [hit.text for hit in recalled] == ["coffee"]
            assert (recalled.behind, store.index_lag("u")) == (0, 0)
            assert other.calls == 2, "one for the question, one for both messages"


def test_two_that_follow_at_once_with_different_models_do_not_mix(harness: Harness):
    with holdfast.connect(harness.url, embedder=Letters(), background_indexing=False) as store:
        store.append("u", [say("tea"), say("coffee"), say("milk")])
        store.recall("u", "tea")
        store.append("u", say("water"))
        at = store._backend.execute(ReadPosition(b"u"))
        assert (at.model, at.upto) == ("letters/64", 3)
        other = Entry(4, b"\1" * 8, b"\1", {})
        for late in (
            Extend(b"u", "other/8", 3, 4, [other], 0),  # another model
            Extend(b"u", "letters/64", 2, 4, [other], 0),  # from where it is no more
            Extend(b"u", "letters/64", 3, 4, [other], 1),  # from before a rewrite
            Extend(b"u", "letters/64", 3, 9, [other], 0),  # of what is not there
        ):
            store._backend.execute(late)
            assert store._backend.execute(ReadPosition(b"u")).upto == 3, late
        assert store.index_lag("u") == 1
        assert found(store, "u", "water", k=1) == ["water"]


def test_with_the_embedder_down_appends_go_on_and_recall_says_so_and_recovers(open_store: Opener):
    model = Letters()

    def fail(_call: int) -> None:
        raise ConnectionRefusedError("the model is away")

    store = open_store(embedder=model)
    model.before = fail
    assert store.append("u", say("said meanwhile")).first == 1
    assert store.remember("u", "kept meanwhile").first == 1
    with pytest.raises(
        EngineUnreachable, match=r"letters failed.*the model is away.*log is complete"
    ):
        store.recall("u", "meanwhile")
    assert store.index_lag("u") == 2
    model.before = lambda _call: None
    assert sorted(found(store, "u", "meanwhile")) == ["kept meanwhile", "said meanwhile"]


def test_a_wrong_dimension_is_refused_and_nothing_of_it_is_indexed(open_store: Opener):
    model = Letters()
    store = open_store(embedder=model)
    store.append("u", say("tea"))
    model.dimension, promised = 32, 64
    liar = type("Liar", (), {"name": "liar", "dimension": promised, "embed": model.embed})()
    wrong = open_store(embedder=liar)
    with pytest.raises(Refused, match=r"liar gave vectors of shape \(1, 32\), not \(1, 64\)"):
        wrong.recall("u", "tea")
    assert wrong.append("u", say("more tea")).first == 2
    assert wrong.index_lag("u") == 2


def test_scopes_do_not_leak_into_one_another_whatever_their_names(open_store: Opener):
    store, other = open_store(embedder=Letters()), open_store(namespace="o", embedder=Letters())
    names = ["a", "a/b", "ÿm", "m", "s", "ma", "a:memories", "\udcff", "%FFm", "a*"]
    for name in names:
        store.remember(name, f"memory of {name!r}")
        store.append(name, say(f"said in {name!r}"))
        other.remember(name, "of another application")
    for name in names:
        assert sorted(found(store, name, "memory said")) == [
            f"memory of {name!r}",
            f"said in {name!r}",
        ]
    assert store.sessions() == sorted(names, key=lambda name: name.encode("utf-8", "surrogatepass"))


def test_an_index_that_is_behind_says_so_instead_of_answering_short(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
):
    store = open_store(embedder=Letters())
    store.append("u", [say(f"thing number {n}") for n in range(100)])
    assert store.index_lag("u") == 100
    monkeypatch.setattr("holdfast.recall.memory_operations.CATCH_UP_S", 0.0)
    assert store.recall("u", "thing number 99", k=1).behind == 68
    assert store.index_lag("u") == 68
    assert store.wait_for("u") == 68
    recalled = store.recall("u", "thing number 99", k=1)
    assert (recalled.behind, recalled[0].text) == (0, "thing number 99")
    with pytest.raises(EngineUnreachable, match="behind after 0 s"):
        store.append("u", [say(f"more {n}") for n in range(100)])
        store.wait_for("u", timeout_s=0)


def test_what_was_rewritten_is_found_no_more(store: AnyStore):
    store.append("u", [say("the old secret"), say("x")])
    assert found(store, "u", "secret")
    store.rewrite("u", say("only this"))
    assert found(store, "u", "secret") == ["only this"]
    assert store.index_lag("u") == 0


def test_an_expired_session_is_found_no_more(store: AnyStore):
    store.append("u", say("soon gone"), ttl_s=0.2)
    seen = found(store, "u", "soon gone")  # on a slow machine it is over by now
    assert seen == ["soon gone"] or store.stat("u").state is SessionState.EXPIRED
    wait_until(lambda: store.stat("u").state is SessionState.EXPIRED)
    assert found(store, "u", "soon gone") == []
    store.append("u", say("anew"))
    assert found(store, "u", "soon gone") == ["anew"]


def test_since_and_filter_bound_what_is_found(store: AnyStore):
    now = datetime.now(UTC)
    store.append("u", Message("user", "old tea", created_at=now - timedelta(days=9)))
    store.append("u", Message("user", "new tea", created_at=now, extra={"name": "Li"}))
    store.remember("u", "tea memory", meta={"topic": "food", "sure": True})
    assert sorted(found(store, "u", "tea", since=now - timedelta(days=1))) == [
        "new tea",
        "tea memory",
    ]
    assert found(store, "u", "tea", filter={"topic": "food"}) == ["tea memory"]
    assert found(store, "u", "tea", filter={"topic": "food", "sure": False}) == []
    assert found(store, "u", "tea", filter=lambda hit: hit.meta.get("name") == "Li") == ["new tea"]
    for wrong in ({"k": 0}, {"k": True}, {"since": "yesterday"}, {"since": datetime(2026, 1, 1)}):  # noqa: DTZ001
        with pytest.raises(UsageError):
            store.recall("u", "tea", **wrong)


def test_a_damaged_record_hides_nothing_else(store: AnyStore, harness: Harness):
    store.append("u", [say("tea"), say("coffee"), say("milk")])
    harness.tamper("u", 2, b"\xff garbage")
    assert sorted(found(store, "u", "coffee tea milk")) == ["milk", "tea"]
    assert store.index_lag("u") == 0


def test_reindex_builds_everything_anew_from_the_log(store: AnyStore):
    store.append("u", [say("tea"), say("coffee")])
    store.remember("u", "likes tea")
    store.remember("v", "likes milk")
    assert store.reindex() == 4
    assert store.reindex("v") == 1
    assert (store.index_lag("u"), store.index_lag("v")) == (0, 0)
    assert found(store, "u", "coffee", k=1) == ["coffee"]


def test_a_summary_bears_its_numbers_and_is_written_once(open_store: Opener):
    store = open_store(embedder=Letters(), summarizer=Counting())
    store.append("u", [say(f"turn {n}") for n in range(1, 31)])
    first = store.summarize("u", keep=10)
    assert first is not None
    assert store.summarize("u", keep=10) is None, "there is nothing to add"
    store.append("u", [say(f"turn {n}") for n in range(31, 41)])
    assert store.summarize("u", keep=10) is not None
    context = store.context("u", "turn", tokens=150)
    assert context.summary is not None
    shown = str(context.summary.content)
    assert "[1 to 20][21 to 30]" in shown
    assert store.forget("u").memories >= 2


def test_what_was_forgotten_meanwhile_does_not_return_as_a_summary(open_store: Opener):
    summarizer = Counting()
    store = open_store(embedder=Letters(), summarizer=summarizer)
    store.append("u", [say(f"secret {n}") for n in range(30)])
    other = Opener(open_store.harness, "sync")()

    def forget() -> None:
        other.forget("u")

    summarizer.before = forget
    with pytest.raises(Conflict, match="not there any more"):
        store.summarize("u", keep=5)
    other.close()
    assert store.forget("u").memories == 0
    assert store.context("u", "secret", tokens=100).summary is None


def test_a_context_keeps_its_budget_and_covers_everything(store: AnyStore):
    store.append("u", Message("system", "Be brief."))
    for n in range(40):
        store.append(
            "u", [say(f"question {n} about the harbour"), Message("assistant", f"answer {n}")]
        )
    store.remember("u", "The harbour is in Oslo")
    context = store.context("u", "is it in Oslo?", tokens=400)
    assert context.tokens <= 400
    assert context.messages[0].content == "Be brief."
    assert [message.content for message in context.turns][-1] == "answer 39"
    assert "The harbour is in Oslo" in [hit.text for hit in context.memories]
    assert context.summary is not None
    assert context.left_out == ()
    assert context.last == 81
    with pytest.raises(UsageError, match="newest turn alone take"):
        store.context("u", "x", tokens=3)


def test_a_context_is_of_one_instant(open_store: Opener):
    model = Letters()
    store = open_store(embedder=model)
    store.append("u", [say("one"), say("two")])
    store.wait_for("u")
    other = Opener(open_store.harness, "sync")()
    calls = model.calls

    def meanwhile(call: int) -> None:
        if call == calls + 1:  # after the session was looked at, before it is read
            other.append("u", say("three"))
            other.remember("u", "a memory of three")

    model.before = meanwhile
    context = store.context("u", "three", tokens=500)
    other.close()
    assert context.last == 3
    assert texts(context.turns) == ["one", "two", "three"]
    assert [hit.text for hit in context.memories] == ["a memory of three"]
    assert context.left_out == ()


def test_an_index_goes_on_by_itself_after_sigkill_in_the_middle(harness: Harness):
    killed = subprocess.run(
        [sys.executable, "-m", "tests.recall.indexer", harness.url],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert killed.returncode == -signal.SIGKILL, "it ends itself between two batches"
    assert killed.stdout == b"200\n", "every append was acknowledged"
    with holdfast.connect(harness.url, embedder=Letters()) as store:
        assert store.index_lag("u") == 200 - 32 - 64, "two batches are done, the third is not"
        assert store.wait_for("u") == 200 - 32 - 64
        every = store.recall("u", "item", k=1000)
    assert sorted(hit.seq for hit in every) == list(range(1, 201)), "each once"
