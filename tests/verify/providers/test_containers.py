"""Engines in containers, by testcontainers and by Compose, have the verbs of local ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from holdfast.errors import EngineFailed, EngineMissing, FaultNotProven, UsageError
from holdfast.verify.engines import (
    Engine,
    Killable,
    Pausable,
    Restartable,
    find_engines,
    open_engine,
    start_engine,
)
from holdfast.verify.engines.compose import ComposeEngine, compose_command
from holdfast.verify.engines.docker import is_local
from holdfast.verify.engines.recipes import image_of
from holdfast.verify.faults import Proxy, kill, paused, reconfigure

pytestmark = pytest.mark.docker

PROVIDERS = ("docker", "compose")


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, daemon: dict[str, str]) -> str:
    assert daemon["DOCKER_HOST"]
    return str(request.param)


@pytest.fixture
def redis_container(daemon: dict[str, str]) -> Iterator[Engine]:
    assert daemon["DOCKER_HOST"]
    with start_engine("redis", provider="docker") as engine:
        yield engine


def docker(*words: str) -> list[str]:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_it_answers_on_loopback_only_and_has_every_power(redis_container: Engine) -> None:
    assert isinstance(redis_container, Killable)
    assert isinstance(redis_container, Pausable)
    assert isinstance(redis_container, Restartable)
    assert "@127.0.0.1:" in redis_container.url
    assert redis_container.version.startswith("7.")
    assert redis_container.data_dir is None
    assert "Ready to accept connections" in redis_container.log()
    [container] = docker("ps", "--quiet", "--filter", f"name={name_of(redis_container)}")
    shown = json.loads("".join(docker("inspect", container, "--format", "{{json .HostConfig}}")))
    [[binding]] = shown["PortBindings"].values()
    assert binding["HostIp"] == "127.0.0.1"


def test_what_was_written_survives_kill_and_start_on_the_same_url(redis_container: Engine) -> None:
    url = redis_container.url
    with redis.Redis.from_url(url) as client:
        client.set("a", "1")
        evidence = kill(redis_container)
        assert evidence.facts["exit_code"] == 137
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(FaultNotProven, match="not running"):
            kill(redis_container)
        redis_container.start()
        assert redis_container.url == url
        assert client.get("a") == b"1"


def test_a_paused_container_is_silent_and_goes_on(redis_container: Engine) -> None:
    with redis.Redis.from_url(redis_container.url, socket_timeout=0.1) as client:
        client.ping()
        with paused(redis_container), pytest.raises(redis.TimeoutError):
            client.ping()
        assert client.ping()


def test_a_paused_container_can_be_stopped_and_closed(redis_container: Engine) -> None:
    assert isinstance(redis_container, Pausable)
    redis_container.pause()
    redis_container.stop()
    redis_container.stop()
    with pytest.raises(FaultNotProven):
        redis_container.pause()


def test_another_configuration_keeps_data_and_url(redis_container: Engine) -> None:
    with redis.Redis.from_url(redis_container.url) as client:
        client.set("a", "1")
        evidence = reconfigure(redis_container, config="aof-everysec")
        assert evidence.facts["changed"]["appendfsync"] == ("always", "everysec")
        assert client.get("a") == b"1"


def test_an_upgrade_in_place_reads_what_the_old_version_wrote(daemon: dict[str, str]) -> None:
    assert daemon
    with (
        start_engine("redis", provider="docker", version="6.2", config="rdb-only") as engine,
        redis.Redis.from_url(engine.url) as client,
    ):
        client.set("a", "1")
        client.save()
        evidence = reconfigure(engine, version="7")
        assert client.get("a") == b"1"
    before, after = evidence.facts["changed"]["version"]
    assert before.startswith("6.2")
    assert after.startswith("7.")


def test_postgres_keeps_a_commit_over_kill(daemon: dict[str, str]) -> None:
    assert daemon
    with start_engine("postgres", provider="docker", settings={"work_mem": "5MB"}) as engine:
        with psycopg.connect(engine.url, autocommit=True) as client:
            assert client.execute("SHOW work_mem").fetchone() == ("5MB",)
            assert client.execute("SHOW fsync").fetchone() == ("on",)
            client.execute("CREATE TABLE t AS SELECT 1 AS n")
        kill(engine)
        engine.start()
        with psycopg.connect(engine.url) as client:
            assert client.execute("SELECT n FROM t").fetchone() == (1,)


def test_valkey_answers_with_its_own_version(daemon: dict[str, str]) -> None:
    assert "HOLDFAST_VALKEY_IMAGE" in daemon
    with (
        start_engine("valkey", provider="docker") as engine,
        redis.Redis.from_url(engine.url) as client,
    ):
        client.set("a", "1")
        assert client.execute_command("WAITAOF", 1, 0, 1000) == [1, 0]
        assert engine.version == client.info("server")["valkey_version"]


def test_the_proxy_stands_before_a_container(redis_container: Engine) -> None:
    with Proxy(redis_container.url) as proxy, redis.Redis.from_url(proxy.url) as client:
        client.ping()
        assert proxy.cut().facts["connections"] == 1


def test_the_whole_life_of_a_compose_engine(daemon: dict[str, str]) -> None:
    """One test, because version 1 of Compose takes half a second for every word."""
    assert daemon
    engine = start_engine("redis", provider="compose")
    with engine, redis.Redis.from_url(engine.url, socket_timeout=1) as client:
        client.set("a", "1")
        assert kill(engine).facts["exit_code"] == 137
        engine.start()
        assert client.get("a") == b"1"
        await_health(engine)
        with paused(engine), pytest.raises(redis.TimeoutError):
            client.ping()
        evidence = reconfigure(engine, config="aof-everysec")
        assert evidence.facts["changed"]["appendfsync"] == ("always", "everysec")
        assert client.get("a") == b"1"
        assert "Ready to accept connections" in engine.log()
    assert_nothing_of(name_of(engine))


def test_postgres_of_compose_keeps_a_commit_over_kill(daemon: dict[str, str]) -> None:
    assert daemon
    with start_engine("postgres", provider="compose") as engine:
        with psycopg.connect(engine.url, autocommit=True) as client:
            client.execute("CREATE TABLE t AS SELECT 1 AS n")
        kill(engine)
        engine.start()
        with psycopg.connect(engine.url) as client:
            assert client.execute("SELECT n FROM t").fetchone() == (1,)
        await_health(engine)


def test_nothing_is_left_after_close(daemon: dict[str, str]) -> None:
    assert daemon
    engine = start_engine("redis", provider="docker")
    name = name_of(engine)
    assert docker("ps", "--quiet", "--filter", f"name={name}")
    assert docker("volume", "ls", "--quiet", "--filter", f"name={name}")
    engine.close()
    engine.close()
    assert_nothing_of(name)


def test_a_bad_setting_is_told_in_the_engines_own_words_and_leaves_nothing(provider: str) -> None:
    engine = open_engine("redis", provider=provider, settings={"appendfsync": "sometimes"})
    with pytest.raises(EngineFailed, match="appendfsync"), engine:
        pass
    assert_nothing_of(name_of(engine))


def test_a_taken_port_is_told_and_leaves_nothing(redis_container: Engine) -> None:
    port = int(redis_container.url.rpartition(":")[2].partition("/")[0])
    engine = open_engine("redis", provider="docker", port=port)
    with pytest.raises(EngineFailed, match=rf"(?s){port}.*(allocated|in use)"), engine:
        pass
    assert_nothing_of(name_of(engine))


def test_a_killed_run_leaves_no_container(provider: str) -> None:
    program = (
        "import sys, time\nfrom holdfast.verify.engines import start_engine\n"
        "engine = start_engine('redis', provider=sys.argv[1])\n"
        "print(engine.name, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, provider], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        name = run.stdout.readline().strip()
        assert docker("ps", "--quiet", "--filter", f"name={name}")
        os.kill(run.pid, 9)
    deadline = time.monotonic() + 30
    while docker("ps", "--all", "--quiet", "--filter", f"name={name}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_missing_image_is_one_clear_sentence(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_IMAGE", "127.0.0.1:9/holdfast/none:1")
    with pytest.raises(EngineMissing, match=r"127\.0\.0\.1:9/holdfast/none:1 is not here.*pull"):
        open_engine("redis", provider=provider)
    [found] = [one for one in find_engines(provider) if one.kind == "redis"]
    assert found.version is None
    assert "docker pull" in found.how_to_get


def test_images_that_are_here_are_found(provider: str) -> None:
    found = {one.kind: one for one in find_engines(provider)}
    assert found["redis"].version == "7.0"
    assert found["postgres"].version is not None


@pytest.mark.usefixtures("no_daemon")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_missing_daemon_is_one_clear_sentence(provider: str) -> None:
    with pytest.raises(EngineMissing, match=r"no Docker daemon answers .* To get it: ") as told:
        open_engine("redis", provider=provider)
    assert "\n" not in str(told.value)
    assert {one.version for one in find_engines(provider)} == {None}


def test_a_missing_compose_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMPOSE", "no-such-compose --flag")
    with pytest.raises(
        EngineMissing, match="no Docker Compose here; tried `no-such-compose --flag`"
    ):
        compose_command()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("http+docker://localhost", True),
        ("http://127.0.0.1:2375", True),
        ("http+docker://ssh", False),
        ("http://192.0.2.1:2375", False),
        ("https://docker.example:2376", False),
    ],
)
def test_a_daemon_on_another_machine_is_known(address: str, *, local: bool) -> None:
    assert is_local(address) is local


@pytest.mark.usefixtures("no_daemon")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_container_cannot_be_is_refused_before_anything_starts(
    provider: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineMissing, match="use the provider local"):
        open_engine("sqlite", provider=provider)
    with pytest.raises(UsageError, match="several servers"):
        open_engine("redis", provider=provider, config="cluster")
    with pytest.raises(UsageError, match="storage cannot be a directory"):
        open_engine("redis", provider=provider, storage=tmp_path)


@pytest.mark.parametrize(
    ("named", "version", "image"),
    [
        ("", None, "redis:7"),
        ("", "6.2", "redis:6.2"),
        ("mine:1", None, "mine:1"),
        ("host:5000/mine", "7", "host:5000/mine:7"),
        ("host:5000/mine:1", "7", "host:5000/mine:7"),
    ],
)
def test_a_version_is_the_tag_of_the_named_image(
    named: str, version: str | None, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_IMAGE", named)
    assert image_of("redis", version) == image


def await_health(engine: Engine) -> None:
    assert isinstance(engine, ComposeEngine)
    deadline = time.monotonic() + 30
    while engine.health() != "healthy":
        assert time.monotonic() < deadline, engine.health()
        time.sleep(0.05)


def name_of(engine: Engine) -> str:
    name = engine.name  # type: ignore[attr-defined]
    assert isinstance(name, str)
    return name


def assert_nothing_of(name: str) -> None:
    assert docker("ps", "--all", "--quiet", "--filter", f"name={name}") == []
    assert docker("volume", "ls", "--quiet", "--filter", f"name={name}") == []
