"""12 recallable, where the engine compares vectors itself: the same promises, and what only that can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from holdfast import SessionState, Store
from holdfast.recall.index_commands import Search
from holdfast.recall.vectors import pack
from holdfast.recall.words import asked
from tests.contract.harness import AnyStore, Opener, say
from tests.contract.harness_postgres import PgvectorHarness
from tests.contract.harness_redis import Redis8Harness
from tests.contract.test_recallable import (  # noqa: F401 - the same tests, on these engines
    test_a_damaged_record_hides_nothing_else,
    test_an_expired_session_is_found_no_more,
    test_an_index_goes_on_by_itself_after_sigkill_in_the_middle,
    test_an_index_that_is_behind_says_so_instead_of_answering_short,
    test_another_model_means_a_rebuild_and_vectors_are_never_mixed,
    test_forget_removes_messages_memories_summaries_and_the_index,
    test_reindex_builds_everything_anew_from_the_log,
    test_scopes_do_not_leak_into_one_another_whatever_their_names,
    test_since_and_filter_bound_what_is_found,
    test_two_that_follow_at_once_with_different_models_do_not_mix,
    test_what_was_rewritten_is_found_no_more,
    test_what_was_said_and_remembered_is_found_by_meaning_and_can_be_quoted,
    test_words_find_what_no_vector_knows_in_any_script,
)
from tests.recall.models import Letters
from tests.waiting import wait_until

ByEngine = PgvectorHarness | Redis8Harness
ENGINES: dict[str, Callable[[Path], ByEngine]] = {
    "pgvector": PgvectorHarness,
    "redis-8": Redis8Harness,
}


@pytest.fixture(params=ENGINES)
def harness(
    request: pytest.FixtureRequest, disk_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ByEngine:
    monkeypatch.setattr(
        "holdfast.backends.redis.index.CLIENT_MAX", 0
    )  # of Redis: from the first entry on
    return ENGINES[request.param](disk_path)


@pytest.fixture
def open_store(harness: ByEngine) -> Iterator[Opener]:
    """One API: both send the same."""
    opener = Opener(harness, "sync")
    yield opener
    opener.close()


@pytest.fixture
def store(open_store: Opener) -> AnyStore:
    return open_store(embedder=Letters())


def test_the_engine_finds_what_comparing_all_here_finds(harness: ByEngine, open_store: Opener):
    model = Letters()
    texts = [f"{a} {b} {n}" for n, a in enumerate(("tea", "milk", "rum")) for b in range(100)]
    with open_store(embedder=model) as store:
        store.append("u", [say(text) for text in [*texts, " "]])
        store.wait_for("u")
        assert harness.compared_by_engine("u") == len(texts), "all but the one without a word"
        every = pack(model.embed(texts), model="", count=len(texts), dimension=model.dimension)
        for question in ("rum 33 2", "milk and tea", "1 0 0 1"):
            [one] = pack(model.embed([question]), model="", count=1, dimension=model.dimension)
            search = Search(b"u", "letters/64", one.vector, one.sketch, asked(question), 7)
            here = {seq: _cosine(one.vector, other.vector) for seq, other in enumerate(every, 1)}
            assert isinstance(store, Store)
            candidates = store._backend.execute(search)
            for hit in candidates:
                assert hit.nearness == pytest.approx(here[hit.seq], abs=1e-4), hit
            nearest = sorted((hit.nearness for hit in candidates), reverse=True)[:7]
            assert nearest == pytest.approx(sorted(here.values(), reverse=True)[:7], abs=1e-4)
            assert all(hit.words for hit in candidates if hit.seq not in _best(here, 7))


def _cosine(one: bytes, other: bytes) -> float:
    """By hand, from a signed byte a dimension."""
    pairs = [
        ((a + 128) % 256 - 128, (b + 128) % 256 - 128) for a, b in zip(one, other, strict=True)
    ]
    lengths = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
    return sum(a * b for a, b in pairs) / lengths**0.5 if lengths else 0.0


def _best(scores: dict[int, float], count: int) -> set[int]:
    """The numbers of the best, with all that are as good as the last of them."""
    least = sorted(scores.values(), reverse=True)[count - 1]
    return {seq for seq, score in scores.items() if score >= least - 1e-4}


class Silent:
    """Nothing means anything to it."""

    name, dimension = "silent", 8

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[0.0] * self.dimension for _ in texts]


def test_a_text_without_any_direction_is_near_nothing_and_found_by_its_words(open_store: Opener):
    with open_store(embedder=Silent()) as store:
        store.append("u", [say("tea"), say("milk")])
        [milk, tea] = store.recall("u", "milk", k=2)
    assert (milk.text, tea.text, tea.score) == ("milk", "tea", 0.0)
    assert 0 < milk.score < 1


def test_vectors_leave_the_engine_with_what_they_were_made_of(
    harness: ByEngine, open_store: Opener
):
    with open_store(embedder=Letters()) as store:
        store.append("u", [say("tea"), say("milk")])
        store.remember("u", "likes tea")
        store.append("brief", say("soon gone"))
        store.wait_for("brief")
        store.wait_for("u")
        assert (harness.compared_by_engine("u"), harness.compared_by_engine("brief")) == (3, 1)
        store.append("brief", say("very soon"), ttl_s=0.1)
        store.rewrite("u", say("only this"))
        store.wait_for("u")
        assert harness.compared_by_engine("u") == 2
        store.forget("u")
        assert harness.compared_by_engine("u") == 0
        # PostgreSQL frees what has expired with later writes, about once a second.
        wait_until(
            lambda: bool(store.append("v", say("x"))) and not harness.compared_by_engine("brief")
        )
        assert store.stat("brief").state is SessionState.EXPIRED


@pytest.mark.parametrize(("dimension", "by_engine"), [(4000, 2), (16_008, 0)])
def test_vectors_that_are_too_long_for_the_engine_are_compared_by_the_client(
    harness: ByEngine, open_store: Opener, dimension: int, by_engine: int
):
    with open_store(embedder=Letters(dimension=dimension)) as store:
        store.append("u", [say("tea with milk"), say("rum")])
        assert [hit.text for hit in store.recall("u", "tea", k=1)] == ["tea with milk"]
    assert harness.compared_by_engine("u") == by_engine
