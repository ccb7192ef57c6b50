"""Chroma's server as a real process."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from holdfast.errors import EngineFailed
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.chroma import ChromaEngine


def _request(url: str, body: object | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def _collections(engine: Any) -> str:
    return f"{engine.url}/api/v2/tenants/default_tenant/databases/default_database/collections"


def test_what_was_added_survives_sigkill_and_restart(chroma_engine: ChromaEngine) -> None:
    made = _request(_collections(chroma_engine), {"name": "memory"})
    records = {"ids": ["1"], "embeddings": [[1.0, 0.0]], "documents": ["My name is Xiao Li"]}
    _request(f"{_collections(chroma_engine)}/{made['id']}/add", records)
    url = chroma_engine.url
    chroma_engine.kill()
    chroma_engine.start()
    chroma_engine.restart()
    assert chroma_engine.url == url
    found = _request(f"{_collections(chroma_engine)}/{made['id']}/get", {})
    assert found["documents"] == ["My name is Xiao Li"]


def test_every_engine_is_new_and_says_its_version(chroma_engine: ChromaEngine) -> None:
    assert _request(_collections(chroma_engine)) == []
    assert chroma_engine.version.startswith("1.")


def test_pause_and_resume(chroma_engine: ChromaEngine) -> None:
    chroma_engine.pause()
    chroma_engine.resume()
    assert _request(f"{chroma_engine.url}/api/v2/heartbeat")


def test_settings_reach_it(chroma_engine_factory: EngineFactory) -> None:
    engine = chroma_engine_factory(settings={"allow_reset": True})
    request = urllib.request.Request(f"{engine.url}/api/v2/reset", method="POST")
    with urllib.request.urlopen(request, timeout=10) as reply:
        assert reply.status == 200


def test_a_taken_port_is_not_mistaken_for_our_own_server(
    chroma_engine: ChromaEngine, chroma_engine_factory: EngineFactory
) -> None:
    """The other server would answer the heartbeat in our place."""
    with pytest.raises(EngineFailed, match="is not available"):
        chroma_engine_factory(port=chroma_engine.port)


def test_a_bad_value_fails_with_the_engines_own_words(chroma_engine_factory: EngineFactory) -> None:
    with pytest.raises(EngineFailed, match="max_payload_size_bytes"):
        chroma_engine_factory(settings={"max_payload_size_bytes": "plenty"})
