"""Recall with vectors compared by the engine, beside the client on the same server.

The client compares where the engine must not: a role that may not create pgvector, a user who may
not call VADD. Each of both has a log of its own with the same memories.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests import wheels

import holdfast
from bench.figure import Figure, seconds, side_by_side
from bench.recall import SET, TOP
from bench.recall import _memories as memories
from holdfast import Message, Store
from holdfast.recall import vectors
from holdfast.recall.embedders import WordLlama
from holdfast.recall.index_commands import Search

MANY = 20_000
PART = 2_000
ROUNDS = 15


def run() -> Iterator[Figure]:
    """Every figure of engines that compare vectors themselves."""
    with wheels.start("postgres", storage="disk") as engine:
        plain = _without_pgvector(engine)
        yield from _compare("PostgreSQL with pgvector", engine.url, plain, at_least=1.5)
    with wheels.start("redis", config="aof-always", storage="disk") as engine:
        plain = _without_vector_sets(engine)
        yield from _compare("Redis 8 with vector sets", engine.url, plain, at_least=10)


def _without_pgvector(engine: Any) -> str:
    engine.query("CREATE ROLE app LOGIN")
    engine.query("CREATE DATABASE plain")
    engine.query("GRANT CREATE ON DATABASE plain TO app")
    return str(engine.role_url("app", "plain"))


def _without_vector_sets(engine: Any) -> str:
    engine.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-vadd")
    return f"redis://app:secret@127.0.0.1:{engine.port}/0"


def _compare(name: str, by_engine: str, by_client: str, *, at_least: float) -> Iterator[Figure]:
    model, texts = WordLlama(), list(memories(MANY))
    rows = [json.loads(line) for line in SET.read_text("utf-8").splitlines()]
    questions = [row["question"] for row in rows if "question" in row]
    every, asked = (
        vectors.pack(model.embed(part), model="", count=len(part), dimension=model.dimension)
        for part in (texts, questions)
    )
    with (
        holdfast.connect(
            by_engine, embedder=model, background_indexing=False, namespace="engine"
        ) as engine,
        holdfast.connect(
            by_client, embedder=model, background_indexing=False, namespace="client"
        ) as client,
    ):
        rates = {}
        for way, store in (("engine", engine), ("client", client)):
            for begin in range(0, MANY, PART):
                store.append("u", [Message("user", text) for text in texts[begin : begin + PART]])
            rates[way] = MANY / seconds(lambda: store.wait_for("u", timeout_s=3600))  # noqa: B023
        asking = {way: iter(questions * 2) for way in rates}
        taken = side_by_side(
            {
                "engine": lambda: engine.recall("u", next(asking["engine"])),
                "client": lambda: client.recall("u", next(asking["client"])),
            },
            rounds=ROUNDS,
        )
        yield Figure(
            f"{name}: recall by the client / by the engine",
            taken["client"] / taken["engine"],
            at_least=at_least,
            detail=f"{taken['client'] * 1000:.0f} and {taken['engine'] * 1000:.0f} ms, {MANY:,} memories",
        )
        yield Figure(
            f"{name}: catching up where the engine compares, beside the client",
            rates["engine"] / rates["client"],
            detail=f"{rates['client']:,.0f} and {rates['engine']:,.0f} memories/s",
        )
        yield Figure(
            f"{name}: of the true nearest {TOP}, found",
            _found(engine, asked, every),
            at_least=0.999,
            unit="",
            detail=f"by the client {_found(client, asked, every):.3f}; {len(questions)} questions",
        )


def _found(store: Store, asked: Sequence[vectors.Packed], every: Sequence[vectors.Packed]) -> float:
    """By vectors alone, beside comparing all of them exactly; what is equally near counts."""
    matrix = vectors.unpack([one.vector for one in every])
    shares = []
    for one in asked:
        exact = matrix @ vectors.unpack([one.vector])[0]
        least = np.sort(exact)[-TOP] - 1e-6
        model = f"{WordLlama.name}/{WordLlama.dimension}"
        hits = store._backend.execute(Search(b"u", model, one.vector, one.sketch, (), TOP))  # noqa: SLF001
        best = sorted(hits, key=lambda hit: -hit.nearness)[:TOP]
        shares.append(sum(bool(exact[hit.seq - 1] >= least) for hit in best) / TOP)
    return statistics.mean(shares)
