"""pgvector comes and goes: what is found stays the same, and no text is embedded again for it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.verify.indexes import index_of
from tests import wheels
from tests.contract.harness import AnyStore, Opener, say
from tests.recall.models import Letters
from tests.waiting import wait_until

TEXTS = [f"the number is {number}" for number in range(60)]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with wheels.start("postgres") as engine:
        engine.query("CREATE ROLE app LOGIN")
        yield engine


class Database:
    """One of its own, in which the role `app` may make tables, but no extension."""

    numbers = itertools.count(1)

    def __init__(self, server: Any) -> None:
        self.name = f"app_{next(self.numbers)}"
        self._server = server
        server.query(f"CREATE DATABASE {self.name}")
        server.query(f"GRANT CREATE ON DATABASE {self.name} TO app")
        self.url = server.role_url("app", self.name)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """As superuser."""
        found: list[tuple[Any, ...]] = self._server.query(statement, database=self.name)
        return found

    def copied(self) -> int | None:
        """How many vectors pgvector has; None where there is no place for them."""
        if self.query("SELECT to_regclass('holdfast.near')") == [(None,)]:
            return None
        return int(self.query("SELECT count(*) FROM holdfast.near")[0][0])


@pytest.fixture
def database(server: Any) -> Database:
    return Database(server)


def opened(url: str, model: Letters) -> AnyStore:
    """The log is indexed when it is asked, and not by itself: calls of the model are counted."""
    return Opener(SimpleNamespace(url=url), "sync")(embedder=model)


def best(store: AnyStore) -> tuple[str, float]:
    """What fits best, and how well, as far as arithmetic of different kinds agrees."""
    [hit] = store.recall("u", "number 33", k=1)
    return hit.text, round(hit.score, 4)


def test_it_is_used_from_the_next_connect_on_and_nothing_is_embedded_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.backends.postgres.index.NEAR_BATCH", 25)
    model = Letters()
    with opened(database.url, model) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
        assert database.copied() is None, "the role may not create the extension"
        database.query("CREATE EXTENSION vector")
        assert best(store) == before
    calls = model.calls
    with opened(database.url, model) as store:
        for there in (25, 50, 60, 60):
            assert best(store) == before, there
            assert database.copied() == there
        assert model.calls == calls + 4, "the questions only"
        store.append("u", say("the number is 60"))
        assert store.recall("u", "number 60", k=1)[0].text == "the number is 60"
        assert database.copied() == 61


def test_a_running_store_goes_on_when_it_is_dropped_and_the_next_one_makes_it_anew(
    database: Database,
):
    database.query("CREATE EXTENSION vector")
    model = Letters()
    with opened(database.url, model) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
        assert database.copied() == 60
        database.query("DROP EXTENSION vector CASCADE")
        assert best(store) == before
        store.append("u", say("said without it"))
        assert store.recall("u", "said without it", k=1)[0].text == "said without it"
        store.remember("v", "a secret")
        assert store.forget("u").messages == 61
        store.append("u", say("a new beginning"))
        assert [hit.text for hit in store.recall("u", "number")] == ["a new beginning"]
    database.query("CREATE EXTENSION vector")
    with opened(database.url, model) as store:
        assert [hit.text for hit in store.recall("u", "number")] == ["a new beginning"]
        assert database.copied() == 1


def test_a_dump_restored_where_it_is_missing_is_whole(database: Database, server: Any):
    database.query("CREATE EXTENSION vector")
    model = Letters()
    with opened(database.url, model) as store:
        store.append("u", [say(text) for text in TEXTS])
        before = best(store)
        assert database.copied() == 60
    other, calls = Database(server), model.calls
    dump = run("pg_dump", "--format=custom", f"--dbname={database.url}")
    assert dump.returncode == 0, dump.stderr
    restored = run("pg_restore", "--no-owner", f"--dbname={other.url}", given=dump.stdout)
    assert b'type "public.halfvec" does not exist' in restored.stderr
    assert (other.copied(), other.query("SELECT count(*) FROM holdfast.entries")) == (
        None,
        [("60",)],
    )
    with opened(other.url, model) as store:
        assert best(store) == before
        assert model.calls == calls + 1, "the question only"
        store.append("u", say("said later"))
        assert store.recall("u", "said later", k=1)[0].text == "said later"
        assert store.forget("u").messages == 61
        assert other.query("SELECT count(*) FROM holdfast.entries") == [("0",)]


class Backwards(Letters):
    """Of the same dimension, but another model."""

    def _row(self, text: str) -> list[float]:
        return super()._row(text[::-1])


def test_vectors_from_before_the_index_was_lost_are_neither_asked_nor_kept(database: Database):
    database.query("CREATE EXTENSION vector")
    with (
        opened(database.url, Letters()) as store,
        opened(database.url, Backwards(name="backwards")) as other,
    ):
        things = ["motor oil", "winter coats", "candlestick", "strawberry jam", "door handles"]
        store.append("u", [say(text) for text in things])
        store.wait_for("u")
        assert database.copied() == 5
        for statement in (
            "CREATE TABLE holdfast.empty (LIKE holdfast.entries INCLUDING ALL)",
            "DROP TABLE holdfast.entries",
            "ALTER TABLE holdfast.empty RENAME TO entries",
            "ALTER TABLE holdfast.entries OWNER TO app",
            "DELETE FROM holdfast.followed",
            "DELETE FROM holdfast.words",
        ):
            database.query(statement)
        for thing in things:  # the half of a word is no word: only vectors can tell
            [hit] = other.recall("u", thing[: len(thing) // 2], k=1)
            assert hit.text == thing
        assert other.forget("u").messages == 5
        assert database.copied() == 0


def run(program: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A program of the server's own release."""
    path = wheels.binary("postgres").with_name(program)
    return subprocess.run([path, *words], input=given, capture_output=True, timeout=60)


def test_the_kit_counts_a_copy_that_is_left_behind(database: Database):
    database.query("CREATE EXTENSION vector")
    index = index_of(database.url, "default", Letters)
    assert index.count is not None
    with opened(database.url, Letters()) as store:
        store.append("u", [say(text) for text in TEXTS])
        store.recall("u", "number 33", k=1)
        assert (database.copied(), index.count("u")) == (60, 60)
        database.query("ALTER TABLE holdfast.entries DISABLE TRIGGER near_gone")
        database.query("DELETE FROM holdfast.entries")
        assert index.count("u") == 60, "the copy alone"
        database.query("ALTER TABLE holdfast.entries ENABLE TRIGGER near_gone")
        store.forget("u")
    assert index.count("u") == 0


def test_a_full_forget_rewrites_its_vectors_too(database: Database):
    def file() -> object:
        return database.query("SELECT pg_relation_filenode('holdfast.near')")

    database.query("CREATE EXTENSION vector")
    store = opened(database.url, Letters())
    store.append("s", say("the number is 1"))
    store.recall("s", "number")
    assert database.copied() == 1
    before = file()
    wait_until(lambda: "base/" not in " ".join(store.forget("s", now="full").left))
    assert file() != before
