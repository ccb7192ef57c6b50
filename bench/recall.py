"""Long-term memory: what is found, how fast, and what it costs an append."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings

import holdfast
from bench.figure import Figure, seconds, side_by_side
from holdfast import Message
from holdfast.recall import memory_operations, vectors, words
from holdfast.recall.embedders import MiniLM, WordLlama
from holdfast.recall.index_commands import CANDIDATES_MAX, Candidate

SET = Path(__file__).with_name("data") / "recall.jsonl"
TOP = 5
MANY = 100_000
PART = 5_000
APPENDS = 1000
APPEND_ROUNDS = 5
WORTHS, SCALES = (0.1, 0.2, 0.3, 0.4, 0.5), (3.0, 6.0, 12.0)
CHROMA = 10_000
ROUNDS = 25


class Letters:
    """A control that knows no meaning: hashes of two to four letters."""

    name, dimension = "letters", 512

    def embed(self, texts: Sequence[str]) -> Any:
        """One row a text."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            padded = f" {text.casefold()} "
            for length in (2, 3, 4):
                for at in range(len(padded) - length + 1):
                    code = zlib.crc32(padded[at : at + length].encode())
                    row[code % self.dimension] += 1 if code >> 31 else -1
        return rows


def run() -> Iterator[Figure]:
    """Every figure of long-term memory."""
    yield from _quality()
    yield _sketches()
    # Not the system's temporary directory: that may be memory, where a sync costs nothing.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        yield from _speed(Path(folder))
        yield from _appends(Path(folder))
        yield _chroma(Path(folder))


def _quality() -> Iterator[Figure]:
    """hit@5 on the labelled set: by words, by vectors, by both as `recall` does it.

    Questions about memories with even numbers are the tuning part: the weight of words was chosen
    on it. What is stated was measured on the others, which nothing was chosen on.
    """
    rows = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    texts = [row["text"] for row in rows if "memory" in row]
    asked = [(row["question"], row["answer"] - 1) for row in rows if "question" in row]
    tuning = _Part(texts, [(one, at) for one, at in asked if (at + 1) % 2 == 0])
    held_out = _Part(texts, [(one, at) for one, at in asked if (at + 1) % 2])
    alone = held_out.hits(held_out.words)
    detail = f"{len(texts)} memories, {len(held_out.answers)} questions held out"
    yield Figure(f"hit@{TOP}, words alone", alone, unit="", detail=detail)
    for model in (MiniLM(), WordLlama(), Letters()):
        near = held_out.near(model)
        vectors_alone, both = held_out.hits(near), held_out.mixed(near)
        yield Figure(
            f"hit@{TOP}, {model.name}, vectors alone", vectors_alone, unit="",
            detail=f"the answer first: {held_out.hits(near, top=1):.2f}",
        )  # fmt: skip
        # The bound is the default's; the others are there to choose by.
        least = max(alone, vectors_alone) + 1e-9 if isinstance(model, MiniLM) else None
        yield Figure(
            f"hit@{TOP}, {model.name}, both", held_out.hits(both), at_least=least, unit="",
            detail=f"the answer first: {held_out.hits(both, top=1):.2f}",
        )  # fmt: skip
        if isinstance(model, MiniLM):
            yield _weights(tuning, model)


def _weights(tuning: _Part, model: Any) -> Figure:
    """Whether the weight of words is the best of some on the tuning part: by hits, then by ranks."""
    near = tuning.near(model)
    found = {
        (worth, scale): (tuning.hits(mixed), tuning.rank(mixed))
        for worth in WORTHS
        for scale in SCALES
        for mixed in [tuning.mixed(near, worth, scale)]
    }
    best = max(found, key=lambda one: found[one])
    return Figure(
        "the weight of words is the best on the tuning part",
        float(best == (memory_operations.WORDS_WORTH, memory_operations.WORDS_SCALE)),
        at_least=1.0,
        unit="",
        detail=f"of {len(found)}: worth, scale = {best}, hit@{TOP} {found[best][0]:.2f} "
        f"of {len(tuning.answers)} questions",
    )


class _Part:
    """Some of the questions, with what words alone say."""

    def __init__(self, texts: Sequence[str], asked: Sequence[tuple[str, int]]) -> None:
        self.texts = texts
        self.questions = [question for question, _ in asked]
        self.answers = [answer for _, answer in asked]
        self.words = [[worth or -1.0 for worth in row] for row in _by_words(texts, self.questions)]

    def near(self, model: Any) -> list[list[float]]:
        """How near each memory is to each question."""
        return _near(model, self.texts, self.questions)

    def mixed(
        self,
        near: Sequence[Sequence[float]],
        worth: float = memory_operations.WORDS_WORTH,
        scale: float = memory_operations.WORDS_SCALE,
    ) -> list[list[float]]:
        """Both, as `recall` does it."""
        return [
            [
                memory_operations.score(Candidate(0, at, max(told, 0.0)), worth, scale)
                for at, told in zip(*pair, strict=True)
            ]
            for pair in zip(near, self.words, strict=True)
        ]

    def hits(self, scores: Sequence[Sequence[float]], top: int = TOP) -> float:
        """How many of the questions have their answer among the first."""
        found = 0
        for row, answer in zip(scores, self.answers, strict=True):
            best = sorted(range(len(row)), key=lambda at: -row[at])[:top]
            found += answer in best and row[answer] > -1
        return found / len(self.answers)

    def rank(self, scores: Sequence[Sequence[float]]) -> float:
        """Mean reciprocal rank of the answers."""
        places = [
            1 + sum(other > row[answer] for other in row)
            for row, answer in zip(scores, self.answers, strict=True)
        ]
        return statistics.mean(1 / place for place in places)


def _sketches() -> Figure:
    """In a log that is larger than what is compared exactly: are the true nearest still found?"""
    model, texts = WordLlama(), _texts()
    pairs = [f"{one} {other}" for one in texts for other in texts if one < other]
    rows = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    questions = [row["question"] for row in rows if "question" in row]
    every = [
        vectors.pack(model.embed(part), model="", count=len(part), dimension=model.dimension)
        for part in (pairs, questions)
    ]
    near = (
        vectors.unpack([one.vector for one in every[1]])
        @ vectors.unpack([one.vector for one in every[0]]).T
    )
    bits = [
        np.unpackbits(np.frombuffer(b"".join(one.sketch for one in part), np.uint8).reshape(len(part), -1), axis=1)
        for part in every
    ]  # fmt: skip
    kept = 0
    for asked, scores in zip(bits[1], near, strict=True):
        chosen = np.argsort((bits[0] != asked).sum(axis=1), kind="stable")[:CANDIDATES_MAX]
        found, true = np.sort(scores[chosen])[::-1][:TOP], np.sort(scores)[::-1][:TOP]
        kept += int((found >= true - 1e-5).sum())
    return Figure(
        f"true nearest {TOP} that sketches keep", kept / TOP / len(questions), at_least=0.95, unit="",
        detail=f"{len(pairs):,} memories, {CANDIDATES_MAX:,} compared exactly",
    )  # fmt: skip


def _by_words(texts: Sequence[str], questions: Sequence[str]) -> list[list[float]]:
    known = [words.weights(text) for text in texts]
    often = Counter(term for one in known for term in one)
    rare = {term: words.rarity(count, len(texts)) for term, count in often.items()}
    return [
        [
            sum(one.get(term, 0.0) * rare.get(term, 0.0) for term in words.asked(question))
            for one in known
        ]
        for question in questions
    ]


def _near(model: Any, texts: Sequence[str], questions: Sequence[str]) -> list[list[float]]:
    packed = [
        vectors.unpack([one.vector for one in vectors.pack(
            model.embed(part), model=model.name, count=len(part), dimension=model.dimension
        )])
        for part in (questions, texts)
    ]  # fmt: skip
    found: list[list[float]] = (packed[0] @ packed[1].T).tolist()
    return found


def _texts() -> list[str]:
    rows = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    return [row["text"] for row in rows if "memory" in row]


def _memories(count: int) -> Iterator[str]:
    """Different sentences, with words that are common and words that are rare."""
    texts = _texts()
    for number in range(count):
        text = texts[number % len(texts)]
        yield f"{text} That was on day {number // len(texts)}, ticket T-{number}."


def _speed(here: Path) -> Iterator[Figure]:
    fast = WordLlama()
    fast.embed(["loaded"])
    with holdfast.connect(
        f"sqlite:///{here}/many.db", embedder=fast, background_indexing=False
    ) as store:
        texts = list(_memories(MANY))
        for begin in range(0, MANY, PART):
            store.append("u", [Message("user", text) for text in texts[begin : begin + PART]])
        cpu_s = time.process_time()
        taken = seconds(lambda: store.wait_for("u", timeout_s=3600))
        cpu_s = time.process_time() - cpu_s
        yield Figure(
            "catching up, the fast embedder",
            MANY / taken,
            at_least=2000,
            unit="memories/s",
            detail=f"{MANY / cpu_s:.0f} a second of processor",
        )
        questions = [
            "what is the user's name?",
            "ticket T-70007",
            "用户不能吃什么海鲜？",
            "who is Priya?",
        ]
        times, cpu_s = [], time.process_time()
        for at in range(ROUNDS):
            question = questions[at % len(questions)]
            times.append(seconds(lambda: store.recall("u", question)))  # noqa: B023 - called at once
        cpu_ms = (time.process_time() - cpu_s) / len(times) * 1000
        detail = f"slowest {max(times) * 1000:.0f} ms; {cpu_ms:.0f} ms of processor each"
        median_ms = statistics.median(times) * 1000
        found = store.recall("u", "ticket T-70007", k=1)
        assert found[0].text.endswith("ticket T-70007."), found
        yield Figure(
            f"recall over {MANY:,} memories of one scope",
            median_ms,
            at_most=50,
            unit="ms",
            detail=detail,
        )


def _appends(here: Path) -> Iterator[Figure]:
    """Appends one by one, with the index following by itself, beside the same without.

    Each round has stores of its own: a follower is at work only while its own appends are timed. What
    it has not done by then is said, and how long it takes for that when the appends are over.
    """
    body = list(_memories(APPENDS))
    for model in (MiniLM(), WordLlama()):
        model.embed(["loaded"])
        taken: dict[bool, list[float]] = {False: [], True: []}
        lag, later = 0, 0.0
        for number in range(APPEND_ROUNDS):
            for follow, times in taken.items():
                url = f"sqlite:///{here}/{model.name}-{number}-{follow}.db"
                with holdfast.connect(url, embedder=model, background_indexing=follow) as store:
                    times.append(_append(store, body))
                    lag = store.index_lag("u")
                    if follow and number == APPEND_ROUNDS - 1:
                        later = _followed(store)
        without, beside = (statistics.median(times) for times in taken.values())
        ratios = [one / other for one, other in zip(*taken.values(), strict=True)]
        yield Figure(
            f"append, the index following / not, {model.name}",
            statistics.median(ratios),
            at_least=0.5,
            detail=f"{APPENDS / beside:.0f} appends a second beside {APPENDS / without:.0f}; then "
            f"{lag} of {APPENDS} records behind, followed {later:.1f} s later",
        )


def _append(store: holdfast.Store, body: Sequence[str]) -> float:
    begin = time.perf_counter()
    for text in body:
        store.append("u", Message("user", text))
    return time.perf_counter() - begin


def _followed(store: holdfast.Store) -> float:
    begin = time.perf_counter()
    while store.index_lag("u"):
        time.sleep(0.05)
    return time.perf_counter() - begin


def _chroma(here: Path) -> Figure:
    """Our recall beside Chroma asked by hand, with the same embedder, for as many hits."""
    fast = WordLlama()
    texts = list(_memories(CHROMA))
    client: Any = chromadb.PersistentClient(here / "direct", Settings(anonymized_telemetry=False))
    with (
        client,
        holdfast.connect(
            f"sqlite:///{here}/log.db",
            embedder=fast,
            background_indexing=False,
            index=f"chroma:///{here}/ours",
        ) as store,
    ):
        direct = client.create_collection("memories", embedding_function=None)
        rows = fast.embed(texts)
        for begin in range(0, CHROMA, 1000):
            part = slice(begin, begin + 1000)
            direct.add(
                ids=[str(n) for n in range(begin, begin + 1000)],
                embeddings=rows[part],
                documents=texts[part],
            )
        store.append("u", [Message("user", text) for text in texts])
        store.wait_for("u")

        def by_hand() -> None:
            direct.query(query_embeddings=fast.embed(["who is Priya?"]), n_results=TOP)

        times = side_by_side(
            {"direct": by_hand, "ours": lambda: store.recall("u", "who is Priya?", k=TOP)},
            rounds=60,
        )
    detail = f"{times['direct'] * 1000:.1f} ms by hand, {times['ours'] * 1000:.1f} ms ours"
    return Figure(
        "recall on Chroma / Chroma by hand",
        times["ours"] / times["direct"],
        at_most=1.3,
        detail=detail,
    )
