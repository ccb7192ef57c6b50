"""A check on what a user has already leaves it as it was, or is refused before it writes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import holdfast
from holdfast.errors import EngineMissing, UsageError, VerifyError
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.url_place import PERMIT_VARIABLE
from holdfast.verify.guest import move_in
from tests.contract.harness import say
from tests.contract.harness_redis import engine as shared_engine


class Quiet:
    def say(self, words: str) -> None:
        """Nothing."""

    def done(self, scenario: str, verdict: str) -> None:
        """Nothing."""


def run(url: str) -> Any:
    # With less, a client of a busy machine has too little time to open the store.
    options = CheckOptions(target=url, faults=("none",), promises=("ordered", "expiring"), time_s=5)
    return check(options, Quiet())


def test_a_redis_that_holds_other_data_is_refused_and_an_empty_one_is_left_empty(
    redis_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(redis_engine.url) as client:
        client.set("customer", "dear")
        with pytest.raises(UsageError, match="it holds other data, such as 'customer'") as refused:
            run(redis_engine.url)
        assert redis_engine.password not in str(refused.value)
        assert client.keys() == [b"customer"]
        monkeypatch.setenv(PERMIT_VARIABLE, f"127.0.0.1:{redis_engine.port}/0")
        assert run(redis_engine.url).exit_code == 0
        assert client.keys() == [b"customer"], "only what was there is there"


def test_a_postgres_is_left_as_it_was(postgres_engine: Any) -> None:
    names = "SELECT count(*) FROM pg_namespace"
    with psycopg.connect(postgres_engine.url, autocommit=True) as connection:
        before = connection.execute(names).fetchone()
        assert run(postgres_engine.url).exit_code == 0
        assert connection.execute(names).fetchone() == before
        connection.execute("CREATE TABLE customers ()")
        with pytest.raises(UsageError, match=r"it holds other data, such as 'public\.customers'"):
            run(postgres_engine.url)


def test_a_file_is_left_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with holdfast.connect(url) as store:
        store.append("s", say("dear"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(url).exit_code == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("url", "variables", "service"),
    [
        ("postgresql://localhost/d", {"PGHOSTADDR": "192.0.2.1"}, ""),
        ("postgresql://localhost/d", {"PGSERVICE": "far"}, "hostaddr=192.0.2.1"),
        ("postgresql:///d?service=far", {}, "hostaddr=192.0.2.1"),
        ("postgresql:///d?service=far", {}, "host=192.0.2.1"),
        ("postgresql:///d", {"PGHOST": "192.0.2.1"}, ""),
        ("postgresql://localhost/d?hostaddr=192.0.2.1", {}, ""),
        ("postgresql:///d?host=192.0.2.1", {}, ""),
        ("redis://192.0.2.1/0", {}, ""),
        ("rediss://u:s3cret@192.0.2.1/0", {}, ""),
        ("redis://127.0.0.1,192.0.2.1/0", {}, ""),
    ],
)
def test_a_far_server_is_refused_however_it_is_named(
    url: str,
    variables: dict[str, str],
    service: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "services").write_text(f"[far]\n{service}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"192\.0\.2\.1 is not this machine") as refused:
        run(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://a..b/0", f"redis://{'a' * 70}/0", "postgresql://a..b/d", "redis://[::1/0",
            "postgresql://[::1/d", "foo://[::1", "foo://u:s3cret@x"]
)  # fmt: skip
def test_what_is_no_name_of_a_server_is_refused_in_words(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        run(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "valkeys://127.0.0.1:1/0",
        "redis://127.0.0.1:1/0?ssl_certfile=x",
        "postgresql://127.0.0.1:1/0?failover_timeout_s=1",
    ],
)
def test_a_server_that_is_away_is_missing_however_it_is_named(url: str) -> None:
    with pytest.raises(EngineMissing, match=r"no \w+ answers at 127.0.0.1:1/0"):
        run(url)


def test_a_node_of_a_cluster_is_refused_and_nothing_is_written_to_any(monkeypatch: Any) -> None:
    cluster = shared_engine("redis", "7", "cluster")
    node = cluster.nodes[0]
    for permit in ("", f"127.0.0.1:{node.port}/0"):
        monkeypatch.setenv(PERMIT_VARIABLE, permit)
        with pytest.raises(UsageError, match="servers that only it knows"):
            run(node.url)
    assert [node.call("KEYS", "holdfast*") for node in cluster.nodes] == [[], [], []]


def test_a_role_that_may_make_no_schema_is_told_so(postgres_engine: Any) -> None:
    with psycopg.connect(postgres_engine.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE plain LOGIN PASSWORD 's3cret'")
    with pytest.raises(UsageError, match=r"permission denied .* Nothing was written") as refused:
        run(f"postgresql://plain:s3cret@127.0.0.1:{postgres_engine.port}/postgres")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_what_a_server_that_died_keeps_is_named(kind: str) -> None:
    engine: Any
    with start_engine(kind) as engine, contextlib.ExitStack() as stack:
        move_in(engine.url, stack)
        engine.kill()
        with pytest.raises(VerifyError, match="is left there, under names with holdfast_") as told:
            stack.close()
        assert engine.password not in str(told.value)


@pytest.mark.parametrize("url", ["redis+cluster://127.0.0.1:7000", "redis+sentinel://127.0.0.1/m"])
def test_what_only_its_servers_know_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="servers that only it knows"):
        run(url)
