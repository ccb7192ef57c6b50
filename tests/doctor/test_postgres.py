"""What a PostgreSQL says of itself becomes findings, and nothing is written to find them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import holdfast
from holdfast import Durability, Message
from holdfast.backends.postgres.address import read_address
from holdfast.backends.postgres.driver import open_link
from holdfast.doctor import Hazard, Severity, Soundness, assert_sound, audit
from holdfast.doctor.ask_postgres import _Look
from holdfast.doctor.budget import Budget
from holdfast.doctor.conversation_tables import Column, Table, judge
from tests.doctor.conftest import OnDisk, about, verdicts
from tests.waiting import wait_until

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness
PLAIN = "CREATE ROLE app LOGIN PASSWORD 's3cret'"


class Server:
    """A PostgreSQL with a superuser's connection to set it up."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.url = engine, engine.url
        self._connection = psycopg.connect(engine.url, autocommit=True)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement.encode())

    def one(self, query: str) -> Any:
        [(value,)] = self._connection.execute(query.encode()).fetchall()
        return value

    def as_app(self) -> str:
        """The URL of a plain role."""
        self.run(PLAIN)
        return self.url_of("app")

    def url_of(self, role: str) -> str:
        """With a password that is easily found."""
        there = urlsplit(str(self.url))
        place = there.netloc.rpartition("@")[2]
        return there._replace(netloc=f"{role}:s3cret@{place}").geturl()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server(on_disk: OnDisk) -> Iterator[Server]:
    found = Server(on_disk("postgres"))
    yield found
    found.close()


def test_the_changes_that_it_names_are_the_cure(on_disk: OnDisk):
    settings = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    server = Server(on_disk("postgres", settings=settings))
    # What was given on the command line cannot be overruled: as a file it can.
    server.close()
    server.engine.restart(settings={})
    server = Server(server.engine)
    server.run(*(f"ALTER SYSTEM SET {name} = off" for name in settings), "SELECT pg_reload_conf()")
    wait_until(lambda: verdicts(audit(server.url)) == (UNSOUND, UNSOUND))
    before = audit(server.url)
    assert len([one for one in before.findings if Hazard.POWER in one.hazards]) == 3
    assert before.ack_durability is Durability.PROCESS
    server.run(*(line for one in before.findings for line in one.commands if "pg_ch" not in line))
    wait_until(lambda: verdicts(audit(server.url)) == (SOUND, SOUND))
    assert audit(server.url).ack_durability is Durability.DISK
    server.close()


BY_ROLE_AND_DATABASE = {
    "ALTER ROLE app SET synchronous_commit = off": 'ALTER ROLE "app" RESET',
    "ALTER ROLE app IN DATABASE postgres SET synchronous_commit = off": (
        'ALTER ROLE "app" IN DATABASE "postgres" RESET'
    ),
    "ALTER DATABASE postgres SET synchronous_commit = off": 'ALTER DATABASE "postgres" RESET',
}


def test_the_setting_of_this_role_and_database_counts(server: Server):
    url = server.as_app()
    for statement, cure in BY_ROLE_AND_DATABASE.items():
        assert verdicts(audit(url)) == (SOUND, SOUND)
        server.run(statement)
        found = audit(url)
        assert verdicts(found) == (UNSOUND, UNSOUND)
        assert found.ack_durability is Durability.DISK, "our own store raises it for its writes"
        [finding] = [one for one in found.findings if Hazard.POWER in one.hazards]
        assert finding.commands[0].startswith(cure)
        server.run(*finding.commands)
    assert verdicts(audit(url)) == (SOUND, SOUND)


def test_the_setting_of_another_role_is_a_note(server: Server):
    server.run("CREATE ROLE other", "ALTER ROLE other SET synchronous_commit = off")
    found = audit(server.url)
    assert verdicts(found) == (SOUND, SOUND)
    assert any("synchronous_commit off for other" in one.now for one in found.findings)


def test_a_plain_role_is_enough_and_what_it_cannot_see_is_said(server: Server):
    found = assert_sound(server.as_app())
    assert found.exit_code == 0
    assert found.sound[Hazard.REPLACEMENT] is UNKNOWN
    assert any("the data directory" in words for words in found.unseen)
    assert "s3cret" not in repr(found)


TABLES = [
    (
        "session_id text, role text, content text, created_at timestamptz",
        Hazard.ORDER,
        "nothing but a timestamp",
    ),
    (
        "session_id text, content text, created_at timestamptz, PRIMARY KEY (session_id, created_at)",
        Hazard.CONCURRENCY,
        "equal ones collide",
    ),
    (
        "id uuid PRIMARY KEY, thread_id text, role text, position int",
        Hazard.CONCURRENCY,
        "no unique key refuses",
    ),
    ("session_id text, message jsonb", Hazard.CONCURRENCY, "no primary key and no unique key"),
]


def test_tables_of_messages(server: Server):
    for table, hazard, words in TABLES:
        assert audit(server.url).sound[hazard] is ABSENT
        server.run(f"CREATE TABLE chat ({table})")
        found = audit(server.url)
        assert words in about(found, hazard)
        assert found.facts["tables of messages"] == "public.chat"
        server.run("DROP TABLE chat")


def test_the_cure_of_a_table_keeps_its_rows_and_orders_them(server: Server):
    server.run(
        "CREATE TABLE turns (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), session_id text, "
        "content text, created_at timestamptz)",
        "INSERT INTO turns (session_id, content, created_at) VALUES ('a', 'one', '2026-01-01'), "
        "('a', 'two', '2026-01-02'), ('b', 'one', '2026-01-01')",
    )
    found = audit(server.url)
    assert found.sound[Hazard.ORDER] is UNSOUND
    server.run(*(line for one in found.findings for line in one.commands if "turns" in line))
    healed = audit(server.url)
    assert healed.sound[Hazard.ORDER] is SOUND
    assert healed.sound[Hazard.CONCURRENCY] is SOUND
    asked = (
        "SELECT string_agg(session_id || seq || content, ' ' ORDER BY session_id, seq) FROM turns"
    )
    assert server.one(asked) == "a1one a2two b1one"


def test_an_unlogged_table_of_messages_survives_nothing(server: Server):
    server.run("CREATE UNLOGGED TABLE chat (session_id text, seq int, content text, "
               "PRIMARY KEY (session_id, seq))")  # fmt: skip
    assert verdicts(audit(server.url)) == (UNSOUND, UNSOUND)
    server.run("ALTER TABLE chat SET LOGGED")
    assert verdicts(audit(server.url)) == (SOUND, SOUND)


def table(*columns: Column, unique: tuple[tuple[str, ...], ...] = ()) -> Table:
    return Table("t", unlogged=False, columns=columns, unique=unique)


SESSION, CONTENT = Column("session_id", "text", False), Column("content", "text", False)
CLOCK, SEQ = Column("created_at", "timestamp", False), Column("seq", "bigint", False)
SERIAL = Column("id", "bigint", True)


@pytest.mark.parametrize(
    ("given", "severities"),
    [
        (table(SESSION, CONTENT, CLOCK, SEQ, unique=(("session_id", "seq"),)), []),
        (table(SERIAL, SESSION, CONTENT, CLOCK, unique=(("id",),)), [Severity.NOTE]),
        (table(CONTENT, CLOCK), []),  # no session: no conversation
        (table(SESSION, CLOCK), []),  # a session, and nothing that was said in it
    ],
)
def test_what_is_sound_or_no_conversation_raises_no_alarm(given: Table, severities: list[Severity]):
    assert [finding.severity for finding in judge([given])] == severities


def test_a_streaming_replica_and_its_lag(server: Server):
    assert audit(server.url).sound[Hazard.FAILOVER] is ABSENT
    replica = server.engine.replica()
    # It answers before it follows: only then does the primary know of it.
    wait_until(lambda: audit(server.url).sound[Hazard.FAILOVER] is UNSOUND)
    found = audit(server.url)
    assert verdicts(found) == (SOUND, SOUND)
    assert "asynchronous" in about(found, Hazard.FAILOVER)
    assert [measure.name for measure in found.measures] == ["replica_lag_seconds"]
    standby = audit(replica.url)
    assert standby.sound[Hazard.STALENESS] is UNSOUND
    assert standby.ack_durability is None
    server.run("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    wait_until(lambda: audit(server.url).sound[Hazard.FAILOVER] is SOUND)
    plain = audit(server.as_app())
    assert plain.sound[Hazard.STALENESS] is UNKNOWN
    assert any("pg_monitor" in words for words in plain.unseen)


def test_our_own_records_are_sampled(server: Server):
    with holdfast.connect(server.url) as store:
        for name in ("a", "b"):
            store.append(name, [Message("user", "x"), Message("assistant", "y")])
    whole = audit(server.url)
    assert whole.sound[Hazard.DAMAGE] is SOUND
    assert whole.facts["holdfast records read"] == "4 of 2 session(s)"
    assert whole.facts["tables of messages"] == "none that look like it", "ours is not a stranger's"
    server.run("UPDATE holdfast.messages SET record = 'x' WHERE session = 1 AND seq = 1",
               "DELETE FROM holdfast.messages WHERE session = 2 AND seq = 2")  # fmt: skip
    damaged = about(audit(server.url), Hazard.DAMAGE)
    assert "'a', number 1" in damaged
    assert "'b' lacks some of [1, 2]" in damaged


def test_records_of_an_older_schema_are_not_called_undamaged(server: Server):
    with holdfast.connect(server.url) as store:
        store.append("a", Message("user", "x"))
    server.run("DELETE FROM holdfast.holdfast_schema WHERE version > 1")
    found = audit(server.url)
    assert found.sound[Hazard.DAMAGE] is Soundness.UNKNOWN
    assert "records of holdfast: they are in schema 1" in found.unseen


def test_it_never_writes(server: Server):
    with holdfast.connect(server.url) as store:
        store.append("a", Message("user", "x"))
    server.run("CREATE TABLE chat (session_id text, content text)")
    read_only = server.as_app()
    server.run(
        "ALTER ROLE app SET default_transaction_read_only = on",
        "GRANT USAGE ON SCHEMA holdfast TO app",
        "GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO app",
    )
    next_transaction = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text"
    before = server.one(next_transaction)
    found, forbidden = audit(server.url), audit(read_only)
    assert server.one(next_transaction) == before, "a transaction that writes takes a number"
    for one in (found, forbidden):
        assert one.facts["holdfast records read"] == "1 of 1 session(s)"
        assert "public.chat" in one.facts["tables of messages"]


def test_the_server_itself_would_refuse_a_write(server: Server):
    address = read_address(server.url)
    with open_link(address, "doctor") as link, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        with _Look(link, address, Budget())._read_only():
            link.execute("CREATE TABLE written (x int)")
    assert server.one("SELECT to_regclass('written')") is None


def test_a_lock_costs_bounded_time_and_is_named(server: Server):
    with holdfast.connect(server.url) as store:
        store.append("a", Message("user", "x"))
    with psycopg.connect(server.url) as blocker:
        blocker.execute("LOCK TABLE holdfast.sessions IN ACCESS EXCLUSIVE MODE")
        begin = time.monotonic()
        found = audit(server.url, time_s=1.5)
        assert time.monotonic() - begin < 30
    assert verdicts(found) == (SOUND, SOUND)
    # Where the machine is so busy that the time is over before, that is said of holdfast's schema.
    assert any("holdfast" in words for words in found.unseen)


def test_a_server_that_is_away_is_could_not_look(server: Server):
    server.close()
    server.engine.kill()
    found = audit(server.url_of("postgres"))
    assert found.exit_code == 3
    assert "s3cret" not in repr(found)
