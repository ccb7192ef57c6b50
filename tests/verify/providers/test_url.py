"""A server that already runs: a namespace of our own, cleaned up, and production refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psycopg
import pytest
import redis

from holdfast.errors import EngineMissing, UsageError, VerifyError
from holdfast.verify import guest
from holdfast.verify.engines import (
    Engine,
    Killable,
    Pausable,
    Restartable,
    find_engines,
    open_engine,
    start_engine,
)
from holdfast.verify.engines.protocol import Namespaced
from holdfast.verify.engines.url import clean_up, with_parameter
from holdfast.verify.engines.url_place import Place, looks_like_production
from holdfast.verify.engines.where import postgres_place, redis_place


@pytest.fixture
def redis_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    """A server of somebody else; a client that sees all of it."""
    with start_engine("redis", provider="local") as server:
        monkeypatch.setenv("HOLDFAST_REDIS_URL", server.url)
        with redis.Redis.from_url(server.url) as client:
            yield client


@pytest.fixture
def postgres_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with start_engine("postgres", provider="local") as server:
        monkeypatch.setenv("HOLDFAST_POSTGRES_URL", server.url)
        yield server


def test_a_redis_by_url_is_used_in_a_namespace_and_left_clean(redis_server: redis.Redis) -> None:
    redis_server.set("holdfast_of_a_neighbour", "stays")
    with start_engine("redis", provider="url") as engine:
        assert isinstance(engine, Namespaced)
        with redis.Redis.from_url(engine.url) as client:
            for number in range(3000):
                client.set(f"{{{engine.namespace}:user}}:{number}", "x")
            client.set(f"\xff{engine.namespace}".encode("latin-1"), "not text")
    assert redis_server.keys() == [b"holdfast_of_a_neighbour"]
    commands = redis_server.info("commandstats")
    assert not {"cmdstat_flushall", "cmdstat_flushdb"} & commands.keys()
    assert commands["cmdstat_keys"]["calls"] == 1, "ours, a line above"


def test_we_have_no_power_over_a_server_that_is_not_ours(redis_server: redis.Redis) -> None:
    with start_engine("redis", provider="url") as engine:
        assert not isinstance(engine, Killable | Pausable | Restartable)
        assert engine.data_dir is None
        engine.stop()
        assert redis_server.ping()


def test_two_engines_on_one_server_never_meet(redis_server: redis.Redis) -> None:
    with start_engine("redis", provider="url") as one, start_engine("redis", provider="url") as two:
        assert isinstance(one, Namespaced)
        assert isinstance(two, Namespaced)
        assert one.namespace != two.namespace
        redis_server.set(f"{one.namespace}:a", "1")
        redis_server.set(f"{two.namespace}:a", "2")
        one.close()
        one.close()
        assert redis_server.get(f"{two.namespace}:a") == b"2"


def test_writing_outside_the_namespace_is_told(redis_server: redis.Redis) -> None:
    engine = start_engine("redis", provider="url")
    redis_server.set("session:1", "x")
    with pytest.raises(VerifyError, match=r"wrote outside its namespace .*'session:1'"):
        engine.close()
    assert redis_server.get("session:1") == b"x", "it was left alone"


def test_a_redis_with_keys_of_others_is_refused_unless_permitted(
    redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_server.set("session:1", "x")
    with pytest.raises(UsageError, match="such as 'session:1'") as told:
        start_engine("redis", provider="url")
    place = str(told.value).rpartition("HOLDFAST_URL_IS_FOR_TESTS=")[2]
    monkeypatch.setenv("HOLDFAST_URL_IS_FOR_TESTS", "another:1/0")
    with pytest.raises(UsageError):
        start_engine("redis", provider="url")
    monkeypatch.setenv("HOLDFAST_URL_IS_FOR_TESTS", place)
    with start_engine("redis", provider="url"):
        pass
    assert redis_server.keys() == [b"session:1"]


def test_postgres_by_url_is_a_schema_that_is_dropped(postgres_server: Engine) -> None:
    with start_engine("postgres", provider="url") as engine:
        assert isinstance(engine, Namespaced)
        with psycopg.connect(engine.url) as client:
            client.execute("CREATE TABLE turns (n int)")
            row = client.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'turns'")
            assert row.fetchone() == (engine.namespace,)
        with psycopg.connect(engine.url) as client:
            assert client.execute("SELECT count(*) FROM turns").fetchone() == (0,)
    assert schemas(postgres_server) == []


def test_a_database_with_tables_of_others_is_refused(postgres_server: Engine) -> None:
    with psycopg.connect(postgres_server.url) as client:
        client.execute("CREATE TABLE customers (n int)")
    with pytest.raises(UsageError, match=r"such as 'public\.customers'"):
        start_engine("postgres", provider="url")
    assert schemas(postgres_server) == []


def test_a_table_outside_the_schema_is_told(postgres_server: Engine) -> None:
    engine = start_engine("postgres", provider="url")
    with psycopg.connect(postgres_server.url) as client:
        client.execute("CREATE TABLE customers (n int)")
    with pytest.raises(VerifyError, match=r"public\.customers"):
        engine.close()


def test_a_killed_run_leaves_no_key_and_no_schema(
    redis_server: redis.Redis, postgres_server: Engine
) -> None:
    program = (
        "import time, redis\nfrom holdfast.verify.engines import start_engine\n"
        "postgres = start_engine('postgres', provider='url')\n"
        "engine = start_engine('redis', provider='url')\n"
        "redis.Redis.from_url(engine.url).set(engine.namespace, 1)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        assert redis_server.dbsize() == 1
        assert len(schemas(postgres_server)) == 1
        os.kill(run.pid, 9)
    deadline = time.monotonic() + 20
    while redis_server.dbsize() or schemas(postgres_server):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Place("192.0.2.7", 6379, "0"), "not this machine"),
        (Place("no-such-host.invalid", 6379, "0"), "not this machine"),
        (Place("127.0.0.1", 5432, "shop_production"), "says production"),
        (Place("127.0.0.1", 5432, "prod"), "says production"),
        (Place("127.0.0.1", 5432, "PROD-7"), "says production"),
        (Place("127.0.0.1", 5432, "app", "live"), "says production"),
        (Place("127.0.0.1", 5432, "products"), ""),
        (Place("127.0.0.1", 5432, "delivery"), ""),
        (Place("localhost", 5432, "scratch"), ""),
        (Place("::1", 5432, "scratch"), ""),
        (Place("/run/postgresql", 5432, "scratch"), ""),
    ],
)
def test_what_looks_like_production(place: Place, words: str) -> None:
    reason = looks_like_production(place, [])
    assert words in reason
    assert bool(words) == bool(reason)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:secret@127.0.0.1:7000/3", "127.0.0.1:7000/3"),
        ("redis://?host=db.example", "db.example:6379/0"),
        ("unix:///run/redis.sock?db=2", "/run/redis.sock:6379/2"),
        ("redis://db.example.com/0?path=/tmp/socket", "db.example.com:6379/0"),
    ],
)
def test_a_redis_url_leads_where_the_driver_would_go(url: str, name: str) -> None:
    assert redis_place(url).name == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:secret@127.0.0.1:7000/d", "127.0.0.1:7000/d"),
        ("postgresql:///d?host=db.example", "db.example:5432/d"),
        ("postgresql://localhost/d?hostaddr=192.0.2.1", "192.0.2.1:5432/d"),
    ],
)
def test_a_postgres_url_leads_where_the_driver_would_go(url: str, name: str) -> None:
    assert postgres_place(url).name == name
    assert "secret" not in name


def test_several_servers_are_refused() -> None:
    with pytest.raises(UsageError, match="not several: a,b"):
        postgres_place("postgresql://a,b/d")


def test_a_host_from_the_environment_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    monkeypatch.setenv("HOLDFAST_POSTGRES_URL", "postgresql:///d")
    with pytest.raises(UsageError, match=r"db\.example is not this machine"):
        start_engine("postgres", provider="url")


def test_a_far_host_is_refused_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_URL", "redis://:secret@192.0.2.1:6379/0")
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not this machine") as told:
        start_engine("redis", provider="url")
    assert time.monotonic() - began < 5
    assert "secret" not in str(told.value)


def test_settings_that_were_asked_for_are_checked_and_never_set(
    redis_server: redis.Redis,
) -> None:
    with pytest.raises(UsageError, match="does not run with 'aof-everysec'"):
        start_engine("redis", provider="url", config="aof-everysec")
    with start_engine("redis", provider="url") as engine:
        assert engine.config == "aof-always"
    redis_server.config_set("appendfsync", "everysec")
    with start_engine("redis", provider="url") as engine:
        assert engine.config == "as-it-is"
    with start_engine("redis", provider="url", config="aof-everysec") as engine:
        assert engine.config == "aof-everysec"
    assert redis_server.config_get("appendfsync") == {"appendfsync": "everysec"}


def test_a_version_that_was_asked_for_is_checked(redis_server: redis.Redis) -> None:
    assert redis_server.ping()
    with pytest.raises(EngineMissing, match=r"is redis .*, not 1\.0"):
        start_engine("redis", provider="url", version="1.0")


def test_a_wrong_password_is_called_that(redis_server: redis.Redis) -> None:
    url = os.environ["HOLDFAST_REDIS_URL"]
    redis_server.config_set("requirepass", "right")
    with pytest.raises(UsageError, match="refuses this user name or password, or asks for one"):
        start_engine("redis", provider="url")
    os.environ["HOLDFAST_REDIS_URL"] = url.replace("://", "://:wrong@")
    with pytest.raises(UsageError, match="refuses this user name or password"):
        start_engine("redis", provider="url")


def test_no_url_and_no_answer_are_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_REDIS_URL", raising=False)
    with pytest.raises(EngineMissing, match="HOLDFAST_REDIS_URL is not set"):
        open_engine("redis", provider="url")
    monkeypatch.setenv("HOLDFAST_REDIS_URL", "redis://127.0.0.1:9/0")
    with pytest.raises(EngineMissing, match=r"no redis answers at 127\.0\.0\.1:9/0"):
        start_engine("redis", provider="url")
    with pytest.raises(EngineMissing, match="use the provider local"):
        open_engine("sqlite", provider="url")


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_nonsense_is_no_url(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HOLDFAST_{kind.upper()}_URL", "host=127.0.0.1")
    with pytest.raises(UsageError, match="not the URL of a"):
        open_engine(kind, provider="url")


def test_only_a_namespace_of_ours_is_ever_cleaned(redis_server: redis.Redis) -> None:
    redis_server.set("a", "1")
    with pytest.raises(UsageError, match="nothing was removed"):
        clean_up("redis://127.0.0.1:9", "*")
    assert redis_server.dbsize() == 1


def test_what_is_set_is_found(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_POSTGRES_URL", "postgresql://127.0.0.1:9/d")
    monkeypatch.delenv("HOLDFAST_VALKEY_URL", raising=False)
    found = {one.kind: one for one in find_engines("url")}
    assert found["redis"].version == redis_server.info("server")["redis_version"]
    assert found["postgres"].version is None
    assert found["valkey"].how_to_get.startswith("export HOLDFAST_VALKEY_URL=")


def schemas(server: Engine) -> list[str]:
    with psycopg.connect(server.url) as client:
        rows = client.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'")
        return [str(name) for (name,) in rows]


def test_parameters_are_left_as_they_were_written():
    """A + stays one: to libpq it is no blank."""
    url = "postgresql://h/x?application_name=a+b%20c&schema=mine&password=d%2Be"
    assert with_parameter(url, "schema", "s") == (
        "postgresql://h/x?application_name=a+b%20c&password=d%2Be&schema=s"
    )
    assert guest._only(url, lambda name: name != "schema") == (
        "postgresql://h/x?application_name=a+b%20c&password=d%2Be"
    )
    assert guest._only(url, lambda name: False) == "postgresql://h/x"  # noqa: ARG005
