"""`holdfast migrate`: real histories of every framework, brought over and read back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from agents import SQLiteSession
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.storage.chat_store import SimpleChatStore

import holdfast
from holdfast import EngineUnreachable, Message, SessionState, UsageError
from holdfast.integrations.migration import KINDS, migrate
from tests.integrations import sources
from tests.integrations.sources import Written, langchain_history, read
from tests.sqlite.locks import change_of_journal

HOLDFAST = Path(sys.executable).with_name("holdfast")
REDIS = (sources.langchain_redis, sources.openai_agents_redis, sources.llama_index_redis)
POSTGRES = (
    sources.langchain_postgres,
    sources.openai_agents_postgres,
    sources.llama_index_postgres,
)
FILES = (sources.langchain_sqlite, sources.openai_agents_sqlite, sources.llama_index_json)


def named(write: Any) -> str:
    return str(write.__name__)


def check_moved(written: Written, source: str, target: str) -> None:
    """All of it is there as the framework knows it, and again nothing is added."""
    count = sum(map(len, written.sessions.values()))
    first = migrate(source, target, kind=written.kind, place=written.place)
    assert (first.sessions, first.messages, first.present) == (len(written.sessions), count, 0)
    again = migrate(source, target, kind=written.kind, place=written.place)
    assert (again.sessions, again.messages, again.present) == (0, 0, count)
    assert first.complete
    assert again.complete
    assert first.verified == again.verified == count
    with holdfast.connect(target) as store:
        assert store.sessions() == sorted(written.sessions, key=str.encode)
        for name, messages in written.sessions.items():
            found = read(written, store, name)
            assert [(type(one), one) for one in found] == [(type(one), one) for one in messages]


@pytest.mark.parametrize("write", REDIS, ids=named)
def test_histories_in_redis_are_brought_over_by_who_may_only_read(
    write: Any, redis_engine: Any, url: str
):
    written = write(redis_engine)
    with redis.Redis.from_url(redis_engine.url) as client:
        client.rpush("other:jobs", "1")
        reads = ["+scan", "+lrange", "+pttl", "+type"]
        client.acl_setuser(
            "reader",
            enabled=True,
            nopass=True,
            keys=["*"],
            commands=reads,
            categories=["+@connection"],
        )
    check_moved(written, redis_engine.url.replace(f":{redis_engine.password}@", "reader:@"), url)


@pytest.mark.parametrize("write", POSTGRES, ids=named)
def test_histories_in_postgres_are_brought_over_by_who_may_only_read(
    write: Any, postgres_engine: Any, url: str
):
    written = write(postgres_engine)
    with psycopg.connect(postgres_engine.url) as connection:
        connection.execute("CREATE ROLE reader LOGIN IN ROLE pg_read_all_data")
    scheme = written.url.partition("://")[0]
    reader = postgres_engine.role_url("reader").partition("://")[2]
    check_moved(written, f"{scheme}://{reader}", url)


@pytest.mark.parametrize("write", FILES, ids=named)
def test_histories_in_files_are_brought_over_and_no_byte_beside_them_is_changed(
    write: Any, sqlite_engine: Any, url: str
):
    def files() -> dict[str, str]:
        folder = Path(sqlite_engine.data_dir)
        return {
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in folder.rglob("*")
            if file.is_file()
        }

    written = write(sqlite_engine)
    before = files()
    check_moved(written, written.url, url)
    assert files() == before


def test_a_file_of_an_earlier_llama_index_is_read(sqlite_engine: Any, url: str):
    """It wrote JSON inside of JSON."""
    written = sources.llama_index_json(sqlite_engine)
    path = Path(written.url)
    path.write_text(json.dumps(path.read_text()))
    assert SimpleChatStore.from_persist_path(str(path)).store == written.sessions
    check_moved(written, f"file://{path}", url)


def test_a_file_that_the_application_has_open_is_read_with_its_newest_messages(
    sqlite_engine: Any, url: str
):
    path = Path(sqlite_engine.data_dir) / "agents #1.db"
    session = SQLiteSession("user-42", path)
    try:
        asyncio.run(session.add_items([{"role": "user", "content": "hello"}]))
        moved = migrate(f"sqlite:///{path}", url, kind="openai-agents-sql")
    finally:
        session.close()
    assert (moved.messages, moved.verified) == (1, 1)


@pytest.mark.parametrize("line", ["api, last = StepRunner(store)", "moved.sessions += 1"])
def test_a_migration_that_was_killed_is_taken_up_again(
    crash_at: Any, sqlite_engine: Any, url: str, line: str
):
    """SIGKILL in the third session: before its append, and after."""
    written = sources.langchain_sqlite(sqlite_engine)
    where = "holdfast.integrations.migration.move:_bring"
    crash_at(where, line, hit=3).run(migrate, written.url, url, kind=written.kind)
    with holdfast.connect(url) as store:
        brought = 2 if line.startswith("api") else 3
        assert len(store.sessions()) == brought
        present = sum(store.stat(name).count for name in store.sessions())
    count = sum(map(len, written.sessions.values()))
    moved = migrate(written.url, url, kind=written.kind)
    assert (moved.present, moved.messages) == (present, count - present)
    assert (moved.verified, moved.complete) == (count, True)


@pytest.fixture
def history(redis_engine: Any) -> Any:
    """A history of LangChain in Redis that goes on."""
    made = langchain_history("user-42", redis_engine.url)
    made.add_messages([HumanMessage("a"), AIMessage("b")])
    yield made
    made.redis_client.close()


def test_what_came_to_the_source_later_is_added_by_the_next_run(
    history: Any, redis_engine: Any, url: str
):
    migrate(redis_engine.url, url, kind="langchain-redis")
    history.add_messages([HumanMessage("c")])
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, moved.present, moved.complete) == (1, 2, True)
    with holdfast.connect(url) as store:
        assert [message.content for message in store.history("user-42")] == ["a", "b", "c"]


@pytest.mark.usefixtures("history")
def test_who_went_on_in_the_target_is_left_alone(redis_engine: Any, url: str):
    migrate(redis_engine.url, url, kind="langchain-redis")
    with holdfast.connect(url) as store:
        store.append("user-42", Message("user", "new"))
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, moved.present, moved.complete) == (0, 2, True)


def test_two_that_went_different_ways_are_named_and_not_mixed(
    history: Any, redis_engine: Any, url: str
):
    migrate(redis_engine.url, url, kind="langchain-redis")
    with holdfast.connect(url) as store:
        store.append("user-42", Message("user", "in the target"))
    history.add_messages([HumanMessage("in the source")])
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, moved.complete) == (0, False)
    assert [difference.session for difference in moved.differences] == ["user-42"]
    assert "message 3" in moved.differences[0].reason


@pytest.mark.usefixtures("history")
def test_what_was_forgotten_is_not_brought_back(redis_engine: Any, url: str):
    migrate(redis_engine.url, url, kind="langchain-redis")
    with holdfast.connect(url) as store:
        store.forget("user-42")
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, moved.gone, moved.complete) == (0, ["user-42"], True)
    with holdfast.connect(url) as store:
        assert store.stat("user-42").state is SessionState.FORGOTTEN


def test_what_is_left_of_a_time_to_live_comes_along(history: Any, redis_engine: Any, url: str):
    history.redis_client.expire("message_store:user-42", 3600)
    assert migrate(redis_engine.url, url, kind="langchain-redis").expiring == 1
    with holdfast.connect(url) as store:
        ttl_s = store.stat("user-42").ttl_s
    assert ttl_s is not None
    assert 0 < ttl_s <= 3600


def test_what_cannot_be_read_is_left_out_by_name_and_hides_nothing_else(
    history: Any, redis_engine: Any, url: str
):
    history.redis_client.lpush(
        "message_store:user-42", b'{"type": "human", "da', b'{"type": "own"}'
    )
    history.add_messages([HumanMessage("c")])
    done = subprocess.run(
        [str(HOLDFAST), "migrate", redis_engine.url, url, "--from", "langchain-redis"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    assert "moved: 3 message(s) of 1 session(s)" in done.stdout
    assert "left out: user-42, message 2: JSONDecodeError" in done.stdout
    assert "left out: user-42, message 3: InvalidMessage" in done.stdout


def test_a_session_whose_id_cannot_be_ours_is_left_out_by_name(
    history: Any, redis_engine: Any, url: str
):
    history.redis_client.copy("message_store:user-42", "message_store:")
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, moved.complete) == (2, False)
    assert [(left.session, left.place) for left in moved.left_out] == [("", None)]


@pytest.mark.usefixtures("history")
def test_a_target_that_is_written_to_at_that_moment_is_not_mixed_with(
    redis_engine: Any, url: str, monkeypatch: pytest.MonkeyPatch
):
    def late(messages: Any) -> Any:
        """Somebody writes after the target was read, before it is written."""
        with holdfast.connect(url) as store:
            store.append("user-42", Message("user", "hello"))
        yield list(messages)

    monkeypatch.setattr("holdfast.integrations.migration.move._batches", late)
    moved = migrate(redis_engine.url, url, kind="langchain-redis")
    assert (moved.messages, [one.session for one in moved.differences]) == (0, ["user-42"])


def test_other_lists_among_the_sessions_of_llama_index_are_named(redis_engine: Any, url: str):
    written = sources.llama_index_redis(redis_engine)
    with redis.Redis.from_url(redis_engine.url) as client:
        client.rpush("jobs", "1", "2")
        client.set("counter", 1)
    moved = migrate(redis_engine.url, url, kind=written.kind)
    assert (moved.sessions, moved.foreign, moved.complete) == (4, ["jobs"], True)


@pytest.mark.usefixtures("history")
def test_a_dry_run_counts_and_writes_nothing(redis_engine: Any, disk_path: Path):
    target = disk_path / "memory.db"
    command = [str(HOLDFAST), "migrate", redis_engine.url, f"sqlite:///{target}"]
    options = ["--from", "langchain-redis", "--dry-run", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["sessions"], told["messages"], told["verified"]) == (1, 2, 0)
    assert not target.exists()


def test_a_session_longer_than_one_append_is_brought_over_in_several(
    sqlite_engine: Any, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("holdfast.limits.BATCH_MESSAGES_MAX", 4)
    written = sources.langchain_sqlite(sqlite_engine)
    check_moved(written, written.url, url)


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("sqlite:///nothing.db", "langchain-sql", "cannot be read"),
        ("sqlite:///nothing.db", "langchain-redis", "this source is a Redis"),
        ("redis://127.0.0.1", "langchain-sql", "this source is postgresql://… or sqlite:///file"),
        ("nothing.json", "llama-index-json", "SimpleChatStore.persist"),
        ("sqlite:///nothing.db", "mem0", f"there are: {', '.join(KINDS)}"),
    ],
)
def test_a_wrong_source_is_refused_before_anything_is_written(
    source: str, kind: str, words: str, disk_path: Path
):
    with pytest.raises(UsageError, match=words.replace("+", r"\+")):
        migrate(source, f"sqlite:///{disk_path}/memory.db", kind=kind, dry_run=True)
    assert list(disk_path.iterdir()) == []


def test_a_source_that_this_process_has_open_keeps_its_locks(disk_path: Path):
    """Linux drops every lock of a process on a file when the process closes it anywhere."""
    file = disk_path / "memory.db"
    with holdfast.connect(f"sqlite:///{file}") as store:
        store.append("a", Message("user", "x"))
        assert change_of_journal(file) == "locked"
        with pytest.raises(UsageError, match="with the columns"):
            migrate(
                f"sqlite:///{file}",
                f"sqlite:///{disk_path}/target.db",
                kind="langchain-sql",
                dry_run=True,
            )
        assert change_of_journal(file) == "locked"


def test_a_table_that_is_not_there_is_named_with_the_option(sqlite_engine: Any, url: str):
    written = sources.langchain_sqlite(sqlite_engine)
    with pytest.raises(UsageError, match="'turns' with the columns .* name it with --table"):
        migrate(written.url, url, kind="langchain-sql", place="turns")


def test_a_source_that_does_not_answer_is_an_error_without_its_password(url: str):
    with pytest.raises(EngineUnreachable, match="cannot be read") as told:
        migrate("redis://user:secret@127.0.0.1:1/0", url, kind="langchain-redis")
    assert "secret" not in str(told.value)
