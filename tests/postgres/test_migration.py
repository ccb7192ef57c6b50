"""The schema: made once, by whoever comes first; and what a role needs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import holdfast
from holdfast import EngineUnreachable, FormatTooNew, Refused, Retention, UsageError, codec
from holdfast.backends.postgres.migration import MIGRATIONS, SCHEMA_VERSION
from holdfast.backends.postgres.statements import in_schema
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract import client
from tests.contract.harness import say, texts
from tests.forks import CONTEXT
from tests.postgres.conftest import OpenStore
from tests.recall.models import Letters
from tests.waiting import wait_until


def test_ten_processes_that_start_at_once_make_one_schema(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    together = CONTEXT.Barrier(10)
    starters = [
        CONTEXT.Process(target=client.start, args=(postgres_engine.url, str(number), together))
        for number in range(10)
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(60)
        assert starter.exitcode == 0
    assert sorted(texts(connect(postgres_engine).history("s"))) == [str(n) for n in range(10)]
    versions = admin.execute("SELECT version FROM holdfast.holdfast_schema").fetchall()
    assert versions == [(number + 1,) for number in range(SCHEMA_VERSION)]


def make_schema(admin: psycopg.Connection, version: int) -> None:
    """As an earlier release left it."""
    admin.execute("CREATE SCHEMA holdfast")
    for number in range(1, version + 1):
        admin.execute(in_schema(MIGRATIONS[number - 1], "holdfast"))
        admin.execute("INSERT INTO holdfast.holdfast_schema (version) VALUES (%s)", (number,))


BEGIN_APPEND = (
    "INSERT INTO holdfast.sessions (namespace, name) VALUES ('default', 's') RETURNING id"
)
END_APPEND = "INSERT INTO holdfast.messages (session, seq, record) VALUES (%s, 1, %s)"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_a_client_that_is_in_the_middle_of_a_write_ends_it_before_the_schema_changes(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, version: int
):
    make_schema(admin, version)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_engine.url) as older:
        [(session,)] = older.execute(BEGIN_APPEND).fetchall()
        newer = threads.submit(connect, postgres_engine)
        wait_until(lambda: admin.execute(WAITING).fetchone() == (1,))
        older.execute("SET LOCAL lock_timeout = '10s'")
        older.execute(END_APPEND, (session, codec.encode(say("kept"))))
        older.execute("UPDATE holdfast.sessions SET last = 1 WHERE id = %s", (session,))
        older.commit()
        assert texts(newer.result(30).history("s")) == ["kept"]


@pytest.mark.parametrize("has_view", [False, True])
def test_samples_that_the_server_took_of_names_and_texts_go_with_the_change(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore, has_view: bool
):
    """A view of somebody else's keeps them, and not the change."""
    make_schema(admin, 8)
    for number in range(20):
        [(session,)] = admin.execute(BEGIN_APPEND.replace("'s'", f"'s{number}'")).fetchall()
        admin.execute(END_APPEND, (session, codec.encode(say(f"text {number}"))))
        admin.execute("UPDATE holdfast.sessions SET last = 1 WHERE id = %s", (session,))
    if has_view:
        admin.execute("CREATE VIEW public.theirs AS SELECT name FROM holdfast.sessions")
    admin.execute("ANALYZE")
    samples = "SELECT count(*) FROM pg_stats WHERE schemaname = 'holdfast' AND attname IN ('name', 'record')"
    assert admin.execute(samples).fetchone() == (2,)
    store = connect(postgres_engine)
    assert texts(store.history("s7")) == ["text 7"]
    if not has_view:
        admin.execute("ANALYZE")
        assert admin.execute(samples).fetchone() == (0,)
    triggers = "SELECT count(*) FROM pg_trigger WHERE tgname IN ('move_expiry', 'drop_entry')"
    assert admin.execute(triggers).fetchone() == (2,)


def test_others_work_on_while_a_change_of_the_schema_waits_for_a_long_transaction(
    postgres_engine: PostgresEngine,
    admin: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
):
    make_schema(admin, SCHEMA_VERSION - 1)
    monkeypatch.setattr("holdfast.backends.postgres.migration.MIGRATION_TIMEOUT_S", 3.0)
    with ThreadPoolExecutor(1) as threads, psycopg.connect(postgres_engine.url) as idle:
        idle.execute("SELECT count(*) FROM holdfast.sessions")
        newer = threads.submit(holdfast.connect, postgres_engine.url)
        wait_until(lambda: admin.execute(WAITING).fetchone() == (1,))
        admin.execute("SET lock_timeout = '2s'")
        admin.execute(BEGIN_APPEND)
        with pytest.raises(EngineUnreachable, match=r"transactions open.*Nothing was changed"):
            newer.result(30)
    versions = admin.execute("SELECT max(version) FROM holdfast.holdfast_schema").fetchone()
    assert versions == (SCHEMA_VERSION - 1,)
    with holdfast.connect(postgres_engine.url) as store:
        assert store.sessions() == ["s"]


def test_a_schema_of_a_later_release_is_refused_and_left_alone(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    connect(postgres_engine).append("s", say("kept"))
    admin.execute("INSERT INTO holdfast.holdfast_schema VALUES (99)")
    with pytest.raises(FormatTooNew, match=r"version 99.*Upgrade"):
        connect(postgres_engine)
    admin.execute("DELETE FROM holdfast.holdfast_schema WHERE version = 99")
    assert texts(connect(postgres_engine).history("s")) == ["kept"]


def test_schemas_are_worlds_of_their_own(postgres_engine: PostgresEngine, connect: OpenStore):
    one, two = connect(postgres_engine), connect(postgres_engine, query="schema=Other_1")
    one.append("s", say("one"))
    two.append("s", say("two"))
    assert (texts(one.history("s")), texts(two.history("s"))) == (["one"], ["two"])


@pytest.mark.parametrize(
    "schema", ["", "a b", 'x"y', "x;drop", "1a", "x" * 64, "pg_x", "é", "a.b", "%s"]
)
def test_a_schema_has_a_plain_name(postgres_engine: PostgresEngine, schema: str):
    with pytest.raises(UsageError, match="schema must be a plain name"):
        holdfast.connect(f"{postgres_engine.url}?schema={schema.replace('%', '%25')}")


def test_tables_of_another_program_are_left_alone(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    admin.execute("CREATE TABLE public.sessions (theirs text)")
    with pytest.raises(UsageError, match="tables of another program"):
        connect(postgres_engine, query="schema=public")
    assert admin.execute("SELECT to_regclass('public.messages')").fetchone() == (None,)


GRANTS = (
    "GRANT USAGE ON SCHEMA holdfast TO app",
    "GRANT SELECT ON holdfast.holdfast_schema TO app",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.sessions TO app",
    "GRANT SELECT, INSERT, DELETE, UPDATE (record) ON holdfast.messages TO app",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.keys TO app",
)
"""As docs/howto/postgres.md lists them; a test holds the page to this."""
EARLIER_GRANTS = (
    *GRANTS[:2],
    "GRANT SELECT, INSERT, UPDATE ON holdfast.sessions TO app",
    GRANTS[3],
    "GRANT SELECT, INSERT ON holdfast.keys TO app",
)
"""Of before keys and tombstones were dropped: all works, and nothing is dropped."""

RECALL_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.followed TO app",
    "GRANT SELECT, INSERT, DELETE ON holdfast.entries, holdfast.words TO app",
)


@pytest.mark.parametrize("grants", [GRANTS, EARLIER_GRANTS], ids=["now", "earlier"])
def test_a_role_that_may_not_create_works_where_the_schema_is_there(
    postgres_engine: PostgresEngine,
    admin: psycopg.Connection,
    connect: OpenStore,
    grants: tuple[str, ...],
):
    admin.execute("CREATE ROLE app LOGIN")
    url = postgres_engine.role_url("app")
    with pytest.raises(Refused, match="may not create them"):
        holdfast.connect(url)
    assert admin.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)
    connect(postgres_engine)
    with pytest.raises(Refused, match="role may not"):
        holdfast.connect(url)
    for grant in grants:
        admin.execute(grant.encode())
    with holdfast.connect(url) as store:
        store.append("s", [say("a"), say("b")], key="k", ttl_s=60)
        store.rewrite("s", say("c"))
        assert texts(store.history("s")) == ["c"]
        assert store.sessions() == ["s"]
        store.remember("s", "likes tea")
        assert store.forget_memory("s", 1).memories == 1
        lines = list(store.export())
        assert store.load(lines).present == 2
        assert store.forget("s").messages == 1
        store.append("s", say("tea"))
    with holdfast.connect(url, embedder=Letters()) as store:
        with pytest.raises(Refused, match="role may not"):
            store.recall("s", "tea")
        for grant in RECALL_GRANTS:
            admin.execute(grant.encode())
        assert [hit.text for hit in store.recall("s", "tea")] == ["tea"]
        for grant in RECALL_GRANTS:
            admin.execute(grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM ").encode())
        assert store.forget("s").messages == 1, "the index goes all the same"
        assert admin.execute("SELECT count(*) FROM holdfast.entries").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(url) as plain:
            plain.execute("CREATE TABLE holdfast.more (x text)")


def test_a_role_that_may_not_change_the_schema_holds_nobody_up(
    postgres_engine: PostgresEngine, admin: psycopg.Connection
):
    """A newer release that starts before the owner has brought the schema up to date."""
    make_schema(admin, SCHEMA_VERSION - 1)
    admin.execute("CREATE ROLE app LOGIN")
    for grant in GRANTS:
        admin.execute(grant.encode())
    with psycopg.connect(postgres_engine.url) as idle:
        idle.execute("SELECT count(*) FROM holdfast.sessions")
        begun_s = time.monotonic()
        with pytest.raises(Refused, match="may not create them"):
            holdfast.connect(postgres_engine.role_url("app"))
        assert time.monotonic() - begun_s < 20, "it waited 60 s for locks that it has no use for"


def test_an_owner_without_superuser_rights_brings_a_schema_of_any_name_up_to_date(
    postgres_engine: PostgresEngine, admin: psycopg.Connection
):
    """Also by a role that is a member of the owner's."""
    admin.execute("CREATE ROLE owner LOGIN; CREATE ROLE member LOGIN IN ROLE owner")
    admin.execute("CREATE SCHEMA other AUTHORIZATION owner")
    with psycopg.connect(postgres_engine.role_url("owner")) as owner:
        owner.execute(in_schema(MIGRATIONS[0], "other"))
        owner.execute("INSERT INTO other.holdfast_schema (version) VALUES (1)")
    with holdfast.connect(f"{postgres_engine.role_url('member')}?schema=other") as store:
        assert store.append("s", say("x")).first == 1
    versions = admin.execute("SELECT max(version) FROM other.holdfast_schema").fetchone()
    assert versions == (SCHEMA_VERSION,)


def test_a_client_of_an_earlier_release_that_is_at_work_reads_as_it_did(
    postgres_engine: PostgresEngine, connect: OpenStore, admin: psycopg.Connection
):
    """By `read`: a state and nothing else in the first row, up to schema 7."""
    store = connect(postgres_engine, retention=Retention(last=2))
    for text in ("1", "2 live", "3"):
        store.append("s", say(text))
    ask = "SELECT * FROM holdfast.read(convert_to('default', 'UTF8'), %s, %s, NULL, NULL, %s, 0)"
    for after, forward, numbers in ((None, False, [3, 2]), (1, True, [2, 3])):
        end, *rows = admin.execute(ask, (b"s", after, forward)).fetchall()
        assert end == (3, b"live")
        assert [(number, codec.decode(record).content) for number, record in rows] == [
            (number, {2: "2 live", 3: "3"}[number]) for number in numbers
        ]
    assert admin.execute(ask, (b"never", None, False)).fetchall() == [(0, b"never")]


def test_a_standby_is_no_primary(postgres_engine: PostgresEngine, connect: OpenStore):
    standby = postgres_engine.replica()
    with pytest.raises(Refused, match="standby"):
        connect(standby)
    connect(postgres_engine)
    standby.resume_replay()
    with pytest.raises(Refused, match="standby"):
        connect(standby)


def test_a_role_that_is_read_only_is_refused_at_connect(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    admin.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    with pytest.raises(Refused, match="default_transaction_read_only"):
        connect(postgres_engine)
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'holdfast'")  # fmt: skip
    with pytest.raises(Refused, match="read-only"):
        store.append("s", say("a"))
    assert len(store.history("s")) == 0
