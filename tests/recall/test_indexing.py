"""The index is kept up to date by itself, gives way, and brings nothing back that was forgotten."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import chromadb
import chromadb.config
import psycopg
import pytest

import holdfast
from holdfast import EngineUnreachable, UsageError
from holdfast.recall import embedders
from holdfast.recall.chroma_index import ChromaIndex
from holdfast.recall.index_commands import Entry, Erase, Extend, Position
from tests.contract.harness import AnyStore, Harness, Opener, SqliteHarness, say
from tests.contract.harness_postgres import PostgresHarness
from tests.contract.harness_redis import RedisHarness
from tests.recall.models import Letters
from tests.waiting import wait_until

ENGINES: dict[str, Callable[[Path], Harness]] = {
    "sqlite": SqliteHarness,
    "redis": RedisHarness,
    "postgres": PostgresHarness,
}
LONG_S = 60.0


@pytest.fixture(params=ENGINES)
def harness(request: pytest.FixtureRequest, disk_path: Path) -> Harness:
    return ENGINES[request.param](disk_path)


@pytest.fixture
def sqlite(disk_path: Path) -> SqliteHarness:
    return SqliteHarness(disk_path)


@pytest.fixture(params=["sync", "async"])
def opened(request: pytest.FixtureRequest, harness: Harness) -> Iterator[Opener]:
    opener = Opener(harness, request.param)
    yield opener
    opener.close()


@pytest.fixture(params=["sync", "async"])
def on_sqlite(request: pytest.FixtureRequest, sqlite: SqliteHarness) -> Iterator[Opener]:
    """For what no engine has a part in."""
    opener = Opener(sqlite, request.param)
    yield opener
    opener.close()


class Gate(Letters):
    """An embedder whose first call in the background waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open = threading.Event(), threading.Event()
        self.before = self._hold

    def _hold(self, _call: int) -> None:
        if threading.current_thread().name == "holdfast-indexer":
            self.entered.set()
            assert self.open.wait(LONG_S)


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "holdfast-indexer"]


def indexes(store: AnyStore, scope: str = "u") -> None:
    wait_until(lambda: store.index_lag(scope) == 0, within_s=LONG_S)


def test_what_was_appended_and_remembered_is_followed_without_being_asked_for(opened: Opener):
    store = opened(embedder=Letters(), background_indexing=None)
    store.append("u", [say(f"thing {n}") for n in range(100)])
    store.remember("u", "a memory")
    store.append("other", say("x"))
    indexes(store)
    indexes(store, "other")
    store.rewrite("u", say("only this"))
    indexes(store)
    assert [hit.text for hit in store.recall("u", "only this")] == ["only this", "a memory"]
    store.close()
    wait_until(lambda: not threads(), within_s=LONG_S)


def test_who_only_appends_pays_nothing_and_who_recalls_is_followed_from_then_on(
    sqlite: SqliteHarness, monkeypatch: pytest.MonkeyPatch
):
    model = Letters()
    monkeypatch.setitem(embedders.BY_NAME, embedders.DEFAULT, lambda: model)
    with holdfast.connect(sqlite.url) as store:
        store.append("u", say("x"))
        assert (store._indexer, model.calls) == (None, 0)
        assert [hit.text for hit in store.recall("u", "x")] == ["x"]
        store.append("u", say("y"))
        indexes(store)
    with holdfast.connect(sqlite.url, embedder=model, background_indexing=False) as store:
        store.remember("u", "z")
        assert (store._indexer, store.index_lag("u")) == (None, 1)
    with holdfast.connect(sqlite.url, background_indexing=True) as store:
        store.append("v", say("from the start"))
        indexes(store, "v")


def test_what_a_recall_had_no_time_for_is_followed_after_it(
    sqlite: SqliteHarness, monkeypatch: pytest.MonkeyPatch
):
    with holdfast.connect(sqlite.url, background_indexing=False) as store:
        store.append("u", [say(f"thing {n}") for n in range(100)])
    monkeypatch.setattr("holdfast.recall.memory_operations.CATCH_UP_S", 0.0)
    monkeypatch.setattr(
        "holdfast.recall.indexer.TURN_S", 0.0
    )  # one step, then others have their turn
    with holdfast.connect(sqlite.url, embedder=Letters()) as store:
        assert store.recall("u", "thing").behind == 68
        indexes(store)


def test_a_thread_without_work_ends_and_another_begins_with_the_next_append(
    sqlite: SqliteHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.recall.indexer.IDLE_S", 0.0)
    with holdfast.connect(sqlite.url, embedder=Letters()) as store:
        for number in range(5):
            store.append("u", say(f"thing {number}"))
            indexes(store)
            wait_until(lambda: not threads(), within_s=LONG_S)
        with holdfast.connect(sqlite.url, background_indexing=False) as other:
            other.append("u", say("told while the thread was about to end"))
        leaving = store._indexer
        assert leaving is not None
        leaving._queue.put(b"u")
        leaving._leave()
        indexes(store)


def test_an_embedder_that_is_down_disturbs_nobody_and_the_index_goes_on_when_it_is_back(
    on_sqlite: Opener, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.recall.indexer.PAUSE_S", 0.001)
    model = Letters()

    def fail(_call: int) -> None:
        raise ConnectionRefusedError("the model is away")

    model.before = fail
    store = on_sqlite(embedder=model, background_indexing=None)
    store.append("u", say("said meanwhile"))
    wait_until(lambda: store.index_lag("u") == 1 and model.calls >= 3, within_s=LONG_S)
    with pytest.raises(EngineUnreachable, match="the model is away"):
        store.recall("u", "x")
    assert store.append("u", say("and this")).first == 2
    model.before = lambda _call: None
    indexes(store)


def test_an_index_of_another_model_is_left_to_whoever_recalls(sqlite: SqliteHarness):
    with holdfast.connect(sqlite.url, embedder=Letters()) as store:
        store.append("u", [say("tea"), say("coffee")])
        indexes(store)
        with holdfast.connect(sqlite.url, embedder=Letters(name="another")) as other:
            other.append("u", say("milk"))
            other.append("its own", say("x"))
            indexes(other, "its own")  # the earlier one has been looked at
            assert other.index_lag("u") == 3
            assert store.index_lag("u") == 1
            assert len(other.recall("u", "tea")) == 3
            assert other.index_lag("u") == 0


def test_close_does_not_wait_for_a_model_for_ever_and_nothing_is_added_after_it(
    disk_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.recall.indexer.CLOSE_S", 0.001)
    model = Gate()
    store = holdfast.connect(f"chroma:///{disk_path}", embedder=model)
    store.append("u", say("x"))
    assert model.entered.wait(LONG_S)
    store.close()
    model.open.set()
    wait_until(lambda: not threads(), within_s=LONG_S)
    assert chroma_collections(disk_path / "chroma") == 0


FORKING = """
import os, sys, threading
import holdfast
from holdfast import Message
from tests.recall.models import Letters
from tests.waiting import wait_until

def indexes(store):
    wait_until(lambda: store.index_lag("u") == 0, within_s=60)

parent, inside, go_on = os.getpid(), threading.Event(), threading.Event()
model = Letters()

def hold(_call):
    if os.getpid() == parent:
        inside.set()
        go_on.wait(60)

model.before = hold
store = holdfast.connect(sys.argv[1], embedder=model)
store.append("u", Message("user", "parent"))
assert inside.wait(60)
child = os.fork()
if not child:
    try:
        try:
            store.append("u", Message("user", "child"))
        except holdfast.StoreClosed:
            store.close()
            store = holdfast.connect(sys.argv[1], embedder=model)
            store.append("u", Message("user", "child"))
        indexes(store)
        store.close()
        os._exit(0)
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
store.append("u", Message("user", "parent again"))
indexes(store)
print([hit.text for hit in store.recall("u", "parent again", k=1)])
"""


@pytest.mark.parametrize("where", ["sqlite", "redis"])  # where a child must connect, and may go on
def test_a_fork_in_the_middle_of_a_batch_holds_up_neither_side(where: str, disk_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, ENGINES[where](disk_path).url],
        capture_output=True, text=True, timeout=100, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout == "0\n['parent again']\n", done.stderr
    assert (done.returncode, done.stderr) == (0, "")


LEAVING = """
import sys
import holdfast
from holdfast import Message
from tests.waiting import wait_until

store = holdfast.connect(sys.argv[1], background_indexing=True)
store.append("u", [Message("user", f"The number {n} is no other") for n in range(5000)])
wait_until(lambda: store.index_lag("u") < 5000, within_s=100)
print("left")
"""


def test_a_process_ends_while_the_model_is_at_work_though_nobody_closed_the_store(
    sqlite: SqliteHarness,
):
    done = subprocess.run(
        [sys.executable, "-c", LEAVING, sqlite.url],
        capture_output=True, text=True, timeout=110, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr
    with holdfast.connect(sqlite.url, background_indexing=False) as store:
        assert store.index_lag("u") > 0, "it did not stay until all was done"


def test_wait_for_a_number_goes_that_far(on_sqlite: Opener):
    store = on_sqlite(embedder=Letters())
    ack = store.append("u", [say(f"thing {n}") for n in range(40)])
    later = store.append("u", [say(f"thing {n}") for n in range(40, 100)])
    assert store.wait_for("u", seq=10) == 10
    assert store.index_lag("u") == 68, "a whole batch"
    assert store.wait_for("u", seq=10) == 0
    assert store.wait_for("u", seq=ack) == 40 - 32
    kept = store.remember("u", "a memory")
    assert store.wait_for("u", seq=kept) == 1, "of the memories; of the messages more is done"
    assert store.wait_for("u", seq=later, timeout_s=30) == 100 - 64
    assert store.index_lag("u") == 0
    wrong: Any
    for wrong in (101, -1, True, "9"):
        with pytest.raises(UsageError):
            store.wait_for("u", seq=wrong)
    with pytest.raises(EngineUnreachable, match="behind after 0 s"):
        store.append("u", [say("more")] * 100)
        store.wait_for("u", seq=190, timeout_s=0)
    store.forget("u")
    assert store.wait_for("u", seq=ack) == 0


def lose(harness: Any, part: str) -> None:
    """Take a table or a key of the index away, behind the store's back."""
    if isinstance(harness, SqliteHarness):
        connection = apsw.Connection(str(harness.path))
        connection.execute(f"DROP TABLE {part}")
        connection.close()
    elif isinstance(harness, PostgresHarness):
        with psycopg.connect(harness.url.partition("?")[0]) as server:
            server.execute(f"DROP TABLE {harness.schema}.{part}".encode())
    else:
        assert harness.engine.call("DEL", f"hf:{{default.u}}:{part}") == 1


PARTS = {
    SqliteHarness: ("followed", "vectors", "sketches", "words"),
    PostgresHarness: ("followed", "entries", "words"),
    RedisHarness: ("followed", "entries"),
}


def test_a_dropped_table_or_key_of_the_index_is_made_anew_and_filled_from_the_log(opened: Opener):
    store = opened(embedder=Letters())
    store.append("u", [say("tea"), say("coffee"), say("milk")])
    for part in PARTS[type(opened.harness)]:
        assert [hit.text for hit in store.recall("u", "coffee", k=1)] == ["coffee"]
        lose(opened.harness, part)
        recalled = store.recall("u", "coffee")
        assert sorted(hit.text for hit in recalled) == ["coffee", "milk", "tea"], part
        assert (recalled.behind, store.index_lag("u")) == (0, 0)
        lose(opened.harness, part)
        assert store.append("u", say("water"), ttl_s=None).last
        assert store.rewrite("u", [say("tea"), say("coffee"), say("milk")]).last, part
        assert len(store.recall("u", "coffee")) == 3
    lose(opened.harness, PARTS[type(opened.harness)][0])
    assert store.forget("u").messages == 3


def test_a_store_whose_index_was_dropped_while_it_was_closed_builds_it_anew(harness: Harness):
    with holdfast.connect(harness.url, embedder=Letters()) as store:
        store.append("u", [say("tea"), say("coffee")])
        assert len(store.recall("u", "tea")) == 2
    for part in PARTS[type(harness)]:
        lose(harness, part)
    with holdfast.connect(harness.url, embedder=Letters()) as store:
        store.append("u", say("milk"))
        indexes(store)
        assert len(store.recall("u", "tea")) == 3


def chroma_collections(folder: Path) -> int:
    raw = sqlite3.connect(folder / "chroma.sqlite3", timeout=LONG_S)
    try:
        [(count,)] = raw.execute("SELECT count(*) FROM collections")
    finally:
        raw.close()
    return int(count)


@pytest.mark.parametrize("where", ["postgres", "redis"])
def test_chroma_over_a_log_on_a_server_is_lost_and_comes_back(where: str, disk_path: Path):
    harness, index = ENGINES[where](disk_path), disk_path / "index"
    drinks = [say("tea"), say("coffee")]
    with holdfast.connect(harness.url, embedder=Letters(), index=f"chroma:///{index}") as store:
        store.append("u", drinks)
        store.remember("u", "likes OPS-881")
        indexes(store)
        assert [hit.text for hit in store.recall("u", "coffee", k=1)] == ["coffee"]
        assert [hit.text for hit in store.recall("u", "what is OPS-881", k=1)] == ["likes OPS-881"]
        store.rewrite("u", drinks[:1])
        assert {hit.text for hit in store.recall("u", "coffee")} == {"tea", "likes OPS-881"}
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    client: Any = chromadb.PersistentClient(index, settings)
    for collection in client.list_collections():
        client.delete_collection(collection.name)
    client.close()
    assert chroma_collections(index) == 0
    with holdfast.connect(harness.url, embedder=Letters(), index=f"chroma:///{index}") as store:
        assert store.index_lag("u") == 2
        assert {hit.text for hit in store.recall("u", "coffee")} == {"tea", "likes OPS-881"}
        assert chroma_collections(index) == 2
        erased = store.forget("u")
        assert (erased.messages, erased.memories, erased.scrubbed) == (1, 1, False)
        assert list(store.recall("u", "tea")) == []
    assert chroma_collections(index) == 0


@pytest.mark.parametrize("who", ["this store", "another process"])
def test_a_batch_that_comes_after_a_forget_brings_nothing_back(who: str, disk_path: Path):
    model, url = Gate(), f"sqlite:///{disk_path}/memory.db"
    with holdfast.connect(f"chroma:///{disk_path}", embedder=model) as store:
        store.append("u", say("a secret"))
        assert model.entered.wait(LONG_S)
        if who == "this store":
            store.forget("u")
        else:
            with holdfast.connect(url) as other:  # it knows of no Chroma
                other.forget("u")
        model.open.set()
        store.append("v", say("later"))
        indexes(store, "v")  # then the batch of the secret is over
        assert chroma_collections(disk_path / "chroma") == 1
        store.append("u", say("a new beginning"))
        indexes(store)
        assert [hit.text for hit in store.recall("u", "secret")] == ["a new beginning"]


def test_what_was_read_before_a_forget_is_refused_by_chroma_itself(disk_path: Path):
    index = ChromaIndex(f"chroma:///{disk_path}/index", b"default")
    one = Entry(3, b"\1" * 8, b"\1", {})
    index.execute(Erase(b"u", 5))
    assert index.execute(Extend(b"u", "m/8", 0, 3, [one], 0)) == Position()
    assert index.execute(Extend(b"u", "m/8", 0, 3, [one], 0, from_scratch=True)) == Position()
    assert chroma_collections(disk_path / "index") == 0
    anew = Extend(b"u", "m/8", 0, 6, [Entry(6, b"\1" * 8, b"\1", {})], 5, from_scratch=True)
    assert index.execute(anew).upto == 6
    index.close()
