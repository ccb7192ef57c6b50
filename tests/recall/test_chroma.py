"""Chroma over a log: a cache that may be lost, and comes back by itself."""

from __future__ import annotations

import gc
import shutil
import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chromadb
import chromadb.config
import pytest

import holdfast
from holdfast import EngineUnreachable, Message, OutcomeUnknown, Store
from holdfast.recall.chroma_index import ChromaIndex
from holdfast.recall.index_commands import Position, ReadPosition
from holdfast.verify.engines.chroma import ChromaEngine
from tests.recall.models import Letters


def found(store: Store, query: str, k: int = 5) -> list[str]:
    return [hit.text for hit in store.recall("u", query, k=k)]


def collections(engine: ChromaEngine) -> int:
    path = "/api/v2/tenants/default_tenant/databases/default_database/collections_count"
    with urllib.request.urlopen(engine.url + path, timeout=10) as reply:
        return int(reply.read())


@pytest.fixture
def folder(disk_path: Path) -> Path:
    return disk_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with holdfast.connect(
        f"chroma:///{folder}", embedder=Letters(), background_indexing=False
    ) as opened:
        opened.append("u", [Message("user", "tea"), Message("user", "coffee")])
        opened.remember("u", "likes OPS-881")
        yield opened


def vectors_of(folder: Path) -> list[str]:
    """The numbers of all entries, by Chroma's own tables."""
    with sqlite3.connect(folder / "chroma" / "chroma.sqlite3") as tables:
        return sorted(number for (number,) in tables.execute("SELECT embedding_id FROM embeddings"))


def test_an_erased_memory_leaves_chroma_and_no_late_indexer_brings_it_back(
    store: Store, folder: Path
):
    store.remember("u", "likes OPS-882")
    assert len(found(store, "OPS")) == 4
    assert vectors_of(folder) == ["1", "1", "2", "2"]
    erased = store.forget_memory("u", 1)
    assert (erased.memories, erased.scrubbed) == (1, False)
    assert vectors_of(folder) == ["1", "2", "2"], "the message 1 stays"
    assert "likes OPS-881" not in found(store, "OPS-881")
    assert store.index_lag("u") == 0, "the others stay indexed"

    held, go_on = threading.Event(), threading.Event()
    model = store._models.embedder
    assert isinstance(model, Letters)

    def wait(_call: int) -> None:
        held.set()
        assert go_on.wait(30)

    model.before = wait
    late = threading.Thread(target=store.reindex, args=("u",))
    late.start()
    assert held.wait(30)
    assert store.forget_memory("u", 2).memories == 1
    go_on.set()
    late.join(30)
    assert not late.is_alive()
    model.before = lambda _call: None
    assert sorted(found(store, "OPS")) == ["coffee", "tea"]
    assert vectors_of(folder) == ["1", "2"]


def test_log_and_index_stand_beside_each_other_and_no_text_is_in_chroma(store: Store, folder: Path):
    assert found(store, "coffee", k=1) == ["coffee"]
    assert found(store, "what is OPS-881", k=1) == ["likes OPS-881"]
    assert store.index_lag("u") == 0
    assert {"memory.db", "chroma"} <= {file.name for file in folder.iterdir()}
    files = [file for file in (folder / "chroma").rglob("*") if file.is_file()]
    assert not [file for file in files if b"coffee" in file.read_bytes()]


def test_a_directory_that_is_gone_or_damaged_is_rebuilt(store: Store, folder: Path):
    assert found(store, "coffee", k=1) == ["coffee"]
    shutil.rmtree(folder / "chroma")
    store.append("u", Message("user", "milk"))
    assert sorted(found(store, "milk")) == ["coffee", "likes OPS-881", "milk", "tea"]
    for file in (folder / "chroma").glob("*.sqlite3"):
        file.write_bytes(b"garbage" * 1000)
    store.append("u", Message("user", "water"))
    assert sorted(found(store, "water")) == ["coffee", "likes OPS-881", "milk", "tea", "water"]
    assert store.recall("u", "x").behind == 0


def test_a_collection_whose_files_a_power_cut_emptied_is_rebuilt(store: Store, folder: Path):
    store.append("u", [Message("user", f"thing {n}") for n in range(1500)])
    store.wait_for("u")
    store.close()
    files = [file for file in (folder / "chroma").rglob("*.bin") if file.stat().st_size]
    assert files, "Chroma has persisted its index"
    for file in files:
        file.write_bytes(b"")
    with holdfast.connect(
        f"chroma:///{folder}", embedder=Letters(), background_indexing=False
    ) as again:
        assert again.index_lag("u") >= 1500, "it does not trust what is left"
        again.wait_for("u")
        assert again.recall("u", "thing 1234", k=1)[0].text == "thing 1234"
        assert again.recall("u", "thing 1234", k=1).behind == 0


def test_an_index_of_which_entries_are_missing_is_noticed(store: Store, folder: Path):
    assert found(store, "tea", k=1) == ["tea"]
    store.close()
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    client: Any = chromadb.PersistentClient(folder / "chroma", settings)
    for collection in client.list_collections():
        collection.delete(ids=["1"])
    client.close()
    with holdfast.connect(
        f"chroma:///{folder}", embedder=Letters(), background_indexing=False
    ) as again:
        assert again.index_lag("u") == 3
        assert sorted(found(again, "tea")) == ["coffee", "likes OPS-881", "tea"]


def test_forget_removes_the_collections(store: Store, folder: Path):
    store.append("other", Message("user", "stays"))
    assert store.recall("other", "stays")
    assert found(store, "tea")
    erased = store.forget("u")
    assert (erased.messages, erased.memories, erased.scrubbed) == (2, 1, False)
    assert found(store, "tea") == []
    store.close()
    with sqlite3.connect(folder / "chroma" / "chroma.sqlite3") as raw:
        assert raw.execute("SELECT count(*) FROM collections").fetchone() == (1,)
        assert raw.execute("SELECT count(*) FROM embeddings").fetchone() == (1,)


@pytest.mark.filterwarnings("ignore")  # the driver drops a socket whose server was killed, unclosed
def test_a_server_that_is_down_stops_recall_alone_and_all_is_well_when_it_is_back(
    chroma_engine: ChromaEngine, folder: Path
):
    index = f"chroma+{chroma_engine.url}"
    with holdfast.connect(
        f"sqlite:///{folder}/m.db", embedder=Letters(), index=index, background_indexing=False
    ) as store:
        store.append("u", Message("user", "tea"))
        store.append("gone", Message("user", "a secret"))
        assert found(store, "tea") == ["tea"]
        assert store.recall("gone", "secret")
        chroma_engine.kill()
        assert store.append("u", Message("user", "coffee")).first == 2
        with pytest.raises(EngineUnreachable, match=r"does not answer.*The log is complete"):
            store.recall("u", "coffee")
        with pytest.raises(
            OutcomeUnknown, match="erased from the log for good, but not from its index"
        ):
            store.forget("gone")
        chroma_engine.start()
        assert sorted(found(store, "coffee")) == ["coffee", "tea"]
        assert list(store.recall("gone", "secret")) == []
        assert collections(chroma_engine) == 1, "what was forgotten meanwhile is erased later"
    gc.collect()


def test_a_log_that_was_forgotten_and_begun_anew_elsewhere_has_nothing_of_the_old(
    store: Store, folder: Path
):
    assert found(store, "tea")
    with holdfast.connect(f"sqlite:///{folder}/memory.db") as other:  # knows of no Chroma
        other.forget("u")
        other.append("u", [Message("user", "new"), Message("user", "words")])
    assert sorted(found(store, "tea")) == ["new", "words"]
    assert store.recall("u", "tea").behind == 0


def test_an_index_of_another_log_with_the_same_names_is_not_taken_for_ours(folder: Path):
    index = f"chroma:///{folder}/chroma"
    drinks = ["tea", "coffee", "lemonade", "cocoa"]
    for name, texts in (
        ("one", drinks),
        ("two", ["violin", "harpsichord", "drum", "flute"]),
        ("one", []),
    ):
        with holdfast.connect(
            f"sqlite:///{folder}/{name}.db",
            embedder=Letters(),
            index=index,
            background_indexing=False,
        ) as log:
            if texts:
                log.append("u", [Message("user", text) for text in texts])
            mine = [str(message.content) for message in log.history("u")]
            for text in mine:  # spelt wrong, so that no word helps
                assert log.recall("u", f"{text}{text[-1]}", k=1)[0].text == text


def test_stores_of_one_process_may_open_one_directory_at_once(tmp_path: Path):
    """Chroma hands out its engine before it has started it, and ends it while another takes it."""
    begin = threading.Barrier(4)

    def come_and_go(number: int) -> None:
        for turn in range(5):
            index = ChromaIndex(f"chroma:///{tmp_path}/{turn}", b"default")
            begin.wait(60)
            assert index.execute(ReadPosition(b"log %d" % number)) == Position()
            index.close()

    with ThreadPoolExecutor(4) as people:
        list(people.map(come_and_go, range(4)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]
