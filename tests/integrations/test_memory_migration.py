"""Memories of mem0 in a store: each once, in its scope, found again."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import EngineUnreachable, UsageError
from holdfast.integrations.migration import migrate

LIKES, LIVES, AGENT = (str(uuid.UUID(int=number)) for number in range(3))


def payloads() -> dict[str, dict[str, Any]]:
    """As mem0 2.2.1 stores them beside the vectors: `Memory._add_to_vector_store` and what it calls."""
    hashed = {"hash": "0cc175b9c0f1b6a831c399e269772661", "updated_at": "2026-01-03T00:00:00+00:00"}
    return {
        LIKES: {
            **hashed,
            "data": "Likes tea ü",
            "text_lemmatized": "like tea",
            "user_id": "alice",
            "topic": "drinks",
            "created_at": "2026-01-02T00:00:00+00:00",
        },
        LIVES: {
            **hashed,
            "data": "Lives in Lyon",
            "user_id": "alice",
            "run_id": "r1",
            "created_at": "2026-01-01T00:00:00+00:00",
        },
        AGENT: {**hashed, "data": "Answers briefly", "agent_id": "alice"},
        str(uuid.UUID(int=9)): {**hashed, "data": "", "user_id": "alice"},
    }


def in_a_table(url: str) -> str:
    """The table of its PGVector, with text for the vector: the extension is not needed to read it."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE mem0 (id UUID PRIMARY KEY, vector text, payload JSONB)")
        for name, payload in payloads().items():
            row = (name, "[0,1]", json.dumps(payload))
            connection.execute("INSERT INTO mem0 VALUES (%s, %s, %s)", row)
    return url


def in_a_file(path: Path) -> str:
    """What `get_all` returns: the text as `memory`, the application's own fields in `metadata`."""
    results = []
    for name, payload in payloads().items():
        shown = {key: value for key, value in payload.items() if key != "text_lemmatized"}
        item = {"id": name, "memory": shown.pop("data"), **shown}
        if "topic" in item:
            item["metadata"] = {"topic": item.pop("topic")}
        results.append(item)
    path.write_text(json.dumps({"results": results}))
    return str(path)


@pytest.fixture(params=["mem0-postgres", "mem0-json"])
def source(request: pytest.FixtureRequest, disk_path: Path) -> tuple[str, str]:
    if request.param == "mem0-json":
        return request.param, f"file://{in_a_file(disk_path / 'memories.json')}"
    return request.param, in_a_table(request.getfixturevalue("postgres_engine").url)


def test_memories_are_brought_over_once_and_found(source: tuple[str, str], url: str):
    kind, where = source
    dry = migrate(where, url, kind=kind, dry_run=True)
    moved = migrate(where, url, kind=kind)
    assert (dry.sessions, dry.messages) == (moved.sessions, moved.messages) == (2, 3)
    assert (moved.verified, len(moved.left_out), moved.differences) == (3, 1, [])
    with holdfast.connect(url, embedder="wordllama") as store:
        found = store.memories("alice")
        assert [one.content for one in found] == ["Lives in Lyon", "Likes tea ü"]
        assert found[1].extra["meta"]["topic"] == "drinks"
        assert [one.content for one in store.memories("agent/alice")] == ["Answers briefly"]
        [hit] = store.recall("alice", "tea", k=1)
        assert hit.message.content == "Likes tea ü"
        again = migrate(where, url, kind=kind)
        assert (again.messages, again.present, again.verified) == (0, 3, 3)
        store.forget_memory("alice", found[0].seq or 0)
        store.forget("agent/alice")
    after = migrate(where, url, kind=kind)
    assert (after.messages, after.gone, after.verified) == (0, ["agent/alice"], 1)
    assert [one.session for one in after.differences] == ["alice"]


def test_a_wrong_source_of_memories_is_refused(postgres_engine: Any, url: str, disk_path: Path):
    for kind, where in (("mem0-postgres", postgres_engine.url), ("mem0-json", str(disk_path))):
        with pytest.raises(UsageError):
            migrate(where, url, kind=kind)


def test_a_memory_that_cannot_be_read_is_named_and_holds_up_no_other(
    postgres_engine: Any, url: str
):
    in_a_table(postgres_engine.url)
    deep = '{"data": "deep", "user_id": "alice", "x": ' + "[" * 3000 + "]" * 3000 + "}"
    named = '{"data": "of another id", "user_id": "alice", "id": "1"}'
    with psycopg.connect(postgres_engine.url) as connection:
        for number, payload in enumerate((deep, '"text"', "[1]", "null", named), 100):
            row = (uuid.UUID(int=number), payload)
            connection.execute("INSERT INTO mem0 VALUES (%s, NULL, %s)", row)
    moved = migrate(postgres_engine.url, url, kind="mem0-postgres")
    assert (moved.messages, moved.verified, len(moved.left_out)) == (4, 4, 5)
    assert "RecursionError" in " ".join(one.reason for one in moved.left_out)


def test_a_file_that_nests_without_end_is_refused(url: str, disk_path: Path):
    path = disk_path / "memories.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="cannot be read"):
        migrate(str(path), url, kind="mem0-json")


@pytest.mark.parametrize("kind", ["mem0-postgres", "langgraph-postgres"])
def test_a_table_that_somebody_has_locked_is_not_waited_for_without_end(
    postgres_engine: Any, url: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    module = "checkpointers" if kind == "langgraph-postgres" else "sql"
    monkeypatch.setattr(f"holdfast.integrations.migration.{module}.LOCK_WAIT_S", 1)
    with psycopg.connect(postgres_engine.url) as connection:
        connection.execute("CREATE TABLE mem0 (id UUID, payload JSONB)")
        connection.execute("CREATE TABLE checkpoints (thread_id text)")
        connection.commit()
        connection.execute("LOCK TABLE mem0, checkpoints IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(EngineUnreachable, match="again"):
            migrate(postgres_engine.url, url, kind=kind)
