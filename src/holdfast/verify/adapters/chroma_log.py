"""Conversations in a Chroma collection, as people keep them: targets of the durability card.

Each is a function of an engine. `server_*` talk to a Chroma server; `library_*` open Chroma in the
client process, in the directory of an engine of files only (`--engine sqlite`). Chroma writes its
index to files after 1,000 records; `_indexed` says 50, so that this happens while one watches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import VerifyError
from holdfast.verify.claims import Claims, NotClaimed
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target

INDEXED: Final = {"hnsw:batch_size": 25, "hnsw:sync_threshold": 50}
_COLLECTION: Final = "memory"
_CLAIMS: Final = Claims(
    exactly_once=NotClaimed("add() takes no key"),
    expiring=NotClaimed("it keeps everything"),
    recallable=NotClaimed("not what is measured here"),
)


class ChromaLog:
    """A message is a record with its session beside it; the embedding stands for any."""

    def __init__(self, client: Any, settings: Mapping[str, int]) -> None:
        metadata = dict(settings) or None
        # Without an embedding function: the default one downloads a model.
        self._records = client.get_or_create_collection(
            _COLLECTION, metadata=metadata, embedding_function=None
        )

    def append(self, session: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """One call of add()."""
        at = time.time_ns()
        self._records.add(
            ids=[message["id"] for message in messages],
            documents=[str(message["content"]) for message in messages],
            embeddings=[[float(place), 1.0] for place, _ in enumerate(messages)],
            metadatas=[
                {"session": session, "role": message["role"], "n": at + place}
                for place, message in enumerate(messages)
            ],
        )

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        """In the order of the application's clock: Chroma gives none."""
        found = self._records.get(where={"session": session})
        rows = zip(found["ids"], found["documents"], found["metadatas"], strict=True)
        ordered = sorted(rows, key=lambda row: row[2]["n"])
        turns = [{"id": i, "content": text, "role": told["role"]} for i, text, told in ordered]
        return turns if limit is None else turns[max(len(turns) - limit, 0) :]

    def forget(self, session: str) -> None:
        """Delete its records."""
        self._records.delete(where={"session": session})


def _chroma() -> Any:
    try:
        import chromadb  # noqa: PLC0415 - only whoever measures it needs it
    except ImportError as error:
        raise VerifyError("chromadb is not here; to get it: pip install chromadb") from error
    return chromadb


def _server(engine: Engine) -> Any:
    at = urlsplit(engine.url)
    return _chroma().HttpClient(host=at.hostname, port=at.port)


def _library(engine: Engine) -> Any:
    if engine.data_dir is None:
        raise VerifyError("Chroma as a library needs an engine that has a directory")
    return _chroma().PersistentClient(path=str(engine.data_dir / "chroma"))


def _target_of(
    client: Callable[[Engine], Any], settings: Mapping[str, int]
) -> Callable[[Engine], Target]:
    def target(engine: Engine) -> Target:
        return Target(
            open=lambda: ChromaLog(client(engine), settings),
            engine=engine,
            claims=_CLAIMS,
            name="Chroma",
            settings=settings,
        )

    return target


server_queued: Final = _target_of(_server, {})
server_indexed: Final = _target_of(_server, INDEXED)
library_queued: Final = _target_of(_library, {})
library_indexed: Final = _target_of(_library, INDEXED)
