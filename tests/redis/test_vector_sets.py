"""Redis 8 compares vectors itself; where it may not, or did not before, the client does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.verify.indexes import index_of
from tests.contract.harness import AnyStore, Opener, say
from tests.recall.models import Letters

TEXTS = [f"the number is {number}" for number in range(60)]
NEAR, ENTRIES = "hf:{default.u}:near", "hf:{default.u}:entries"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.backends.redis.index.CLIENT_MAX", 40)


@pytest.fixture
def engine(redis8: Callable[..., Any]) -> Any:
    return redis8(config="aof-always")


def forbidden(engine: Any) -> str:
    """The URL of a user who may do all but that."""
    engine.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-vadd")
    return str(engine.url.replace(f":{engine.password}@", "app:secret@"))


def kept(engine: Any) -> tuple[int, int]:
    """How many vectors are with the engine to compare, and how many for the client."""
    return engine.call("VCARD", NEAR), engine.call("LLEN", ENTRIES)


def opened(url: str, model: Letters) -> AnyStore:
    """The log is indexed when it is asked, and not by itself: calls of the model are counted."""
    return Opener(SimpleNamespace(url=url), "sync")(embedder=model)


def best(store: AnyStore) -> tuple[str, float]:
    """What fits best, and how well, as far as arithmetic of different kinds agrees."""
    [hit] = store.recall("u", "number 33", k=1)
    return hit.text, round(hit.score, 4)


def test_a_log_that_the_client_compared_goes_on_so_until_it_is_rebuilt(engine: Any):
    model = Letters()
    with opened(forbidden(engine), model) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
        assert kept(engine) == (0, 60)
    calls = model.calls
    with opened(engine.url, model) as store:
        assert best(store) == before
        assert model.calls == calls + 1, "the question only"
        store.append("u", say("one more"))
        assert store.recall("u", "one more", k=1)[0].text == "one more"
        assert kept(engine) == (0, 61)
        before = best(store)
        assert store.reindex("u") == 61
        assert (kept(engine), best(store)) == ((61, 0), before)


def test_vectors_survive_a_crash_with_the_log_and_none_is_made_again(engine: Any):
    model = Letters()
    with opened(engine.url, model) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
    calls = model.calls
    engine.kill()
    engine.start()
    with opened(engine.url, model) as store:
        assert kept(engine) == (60, 0)
        assert best(store) == before
        assert model.calls == calls + 1, "the question only"


def test_vectors_that_are_gone_are_made_again_from_the_log(engine: Any):
    with opened(engine.url, Letters()) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
        engine.call("DEL", NEAR)
        assert best(store) == before
        assert kept(engine) == (60, 0)


def test_a_small_log_is_handed_over_to_the_engine_when_it_grows(engine: Any):
    model = Letters()
    with opened(engine.url, model) as store:
        store.append("u", [say(text) for text in TEXTS[:40]])
        before = best(store)
        assert kept(engine) == (0, 40)
        calls = model.calls
        store.append("u", say("quite another thing"))
        assert store.recall("u", "another thing", k=1)[0].text == "quite another thing"
        assert kept(engine) == (41, 0)
        assert model.calls == calls + 2, "the new one, and the question"
        assert best(store)[0] == before[0]
        every = store.recall("u", "number", k=100)
        assert sorted(hit.seq for hit in every) == list(range(1, 42)), "each once"


def test_the_kit_counts_and_loses_them_too(engine: Any):
    index = index_of(engine.url, "default", Letters)
    assert index.count is not None
    assert index.lose is not None
    with opened(engine.url, Letters()) as store:
        store.append("u", [say(text) for text in TEXTS])
        best(store)
        assert (kept(engine), index.count("u")) == ((60, 0), 60)
        index.lose("u")
        assert (kept(engine), index.count("u")) == ((0, 0), 0)
        before = best(store)
        assert before[0] in TEXTS
        assert index.count("u") == 60
        store.forget("u")
    assert index.count("u") == 0
