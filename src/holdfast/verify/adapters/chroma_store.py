"""Chroma as people keep conversations in it: turns are documents, in one collection for all.

`chroma:client` is a directory that every process opens by itself (`PersistentClient`),
`chroma:server` is a server that they share (`HttpClient`). Chroma has neither sessions nor an
order, so both are metadata that the application makes, as its users do: the session, and the
time. Everything else is Chroma's default. Embeddings are our own; Chroma's would be downloaded.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import VerifyError
from holdfast.verify.adapters.frameworks import CLAIMS, imported
from holdfast.verify.claims import Claims, NotClaimed
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.indexes import Hashes, is_installed
from holdfast.verify.target import Target

COLLECTION: Final = "conversations"
About = dict[str, int] | None
_MODEL: Final = "wordllama"
_OWN: Final = ("content", "role", "id")


class Conversations:
    """One document a message, and one a memory; their session, role and time are metadata."""

    def __init__(self, client: Any, model: Any, about: About = None) -> None:
        self._model = model
        self._client = client
        # Without an embedding function: the default one downloads a model.
        self._documents = client.get_or_create_collection(
            COLLECTION, metadata=about, embedding_function=None
        )

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        """One call for the whole turn."""
        now_ns = time.time_ns()
        self._add(
            [message["content"] for message in messages],
            [
                {
                    "session": session,
                    "kind": "message",
                    "id": message["id"],
                    "role": message["role"],
                    "at_ns": now_ns + place,
                    "rest": json.dumps({n: message[n] for n in message if n not in _OWN}),
                }
                for place, message in enumerate(messages)
            ],
        )

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """All of a session, put into the order of its times; Chroma has none of its own."""
        asked = {"$and": [{"session": session}, {"kind": "message"}]}
        found = self._documents.get(where=asked, include=["documents", "metadatas"])
        pairs = zip(found["documents"], found["metadatas"], strict=True)
        turns = sorted(pairs, key=lambda pair: pair[1]["at_ns"])
        shown = turns if limit is None else turns[len(turns) - min(limit, len(turns)) :]
        return [
            {"role": meta["role"], "content": text, "id": meta["id"], **json.loads(meta["rest"])}
            for text, meta in shown
        ]

    def forget(self, session: str) -> None:
        """Delete what bears its name."""
        self._documents.delete(where={"session": session})

    def remember(self, scope: str, text: str) -> None:
        """A document like any other, that no history shows."""
        self._add([text], [{"session": scope, "kind": "memory", "at_ns": time.time_ns()}])

    def recall(self, scope: str, query: str, k: int) -> list[str]:
        """The nearest documents of a session."""
        found = self._documents.query(
            query_embeddings=self._model.embed([query]),
            n_results=k,
            where={"session": scope},
            include=["documents"],
        )
        return list(found["documents"][0])

    def close(self) -> None:
        """Let go of it."""
        self._client.close()

    def _add(self, texts: Sequence[Any], about: Sequence[dict[str, Any]]) -> None:
        self._documents.add(
            ids=[uuid.uuid4().hex for _ in texts],
            documents=list(texts),
            # What is no text has no meaning to embed; Chroma refuses it as a document.
            embeddings=self._model.embed([str(text) for text in texts]),
            metadatas=list(about),
        )


def client(engine: Engine, *, model: Any = None, about: About = None) -> Target:
    """`PersistentClient` on one directory, in every process."""
    if engine.data_dir is None:
        raise VerifyError("Chroma inside a process needs an engine that has a directory")
    folder = Path(engine.data_dir) / "chroma"

    def open_client() -> Any:
        return imported("chromadb", "chroma").PersistentClient(folder, _settings())

    return _target(engine, open_client, "PersistentClient", model, about)


def server(engine: Engine, *, model: Any = None, about: About = None) -> Target:
    """`HttpClient` of one server."""

    def open_client() -> Any:
        chroma, place = imported("chromadb", "chroma"), urlsplit(engine.url)
        return chroma.HttpClient(place.hostname, place.port, settings=_settings())

    return _target(engine, open_client, "HttpClient", model, about)


def _target(
    engine: Engine,
    open_client: Callable[[], Any],
    name: str,
    model: Any,
    about: About,
) -> Target:
    """`about` are settings of the collection."""
    hashes = model is not None or not is_installed(_MODEL)
    return Target(
        open=lambda: Conversations(open_client(), model or _model(), about),
        engine=engine,
        claims=Claims(
            exactly_once=CLAIMS.exactly_once,
            expiring=NotClaimed("Chroma has no time to live"),
            recallable=NotClaimed("embedded by hashes, which know no meaning") if hashes else True,
        ),
        name=f"chroma {name}",
        settings={
            "chromadb": imported("chromadb", "chroma").__version__,
            "order": "by the time of the application, in metadata",
            "embeddings": "hashes" if hashes else _MODEL,
            **(about or {}),
        },
    )


def _settings() -> Any:
    """Nothing but that it calls nobody."""
    return imported("chromadb.config", "chroma").Settings(anonymized_telemetry=False)


def _model() -> Any:
    if not is_installed(_MODEL):
        return Hashes()
    return _Normalised()


class _Normalised:
    """WordLlama with vectors of length 1, as hosted models give them: Chroma's default is L2."""

    def __init__(self) -> None:
        from holdfast.recall.embedders import WordLlama  # noqa: PLC0415 - an extra

        self._words = WordLlama()

    def embed(self, texts: Sequence[str]) -> Any:
        """One row a text."""
        rows = self._words.embed(texts)
        return rows / (rows**2).sum(axis=1, keepdims=True) ** 0.5
