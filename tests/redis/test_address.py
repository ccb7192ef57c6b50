"""Where a URL leads: sockets, TLS, sentinels; and what is wrong with one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Durability, EngineUnreachable, HoldfastError, StorageWarning, UsageError
from holdfast.doctor import Hazard, Soundness, audit
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.raw_protocol import redis_call
from tests.contract.harness import AsyncApi, say, texts
from tests.waiting import wait_until

APIS = [holdfast.connect, AsyncApi]


@pytest.mark.parametrize("api", APIS)
def test_a_unix_socket(redis_engine_factory: EngineFactory, tmp_path: Path, api: Any):
    place = tmp_path / "r.sock"
    engine = redis_engine_factory(config="aof-always", settings={"unixsocket": str(place)})
    with api(f"unix://:{engine.password}@{place}?db=3") as store:
        assert store.append("s", say("x")).first == 1


@pytest.mark.parametrize("api", APIS)
def test_tls(redis_engine_factory: EngineFactory, tmp_path: Path, api: Any):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key,
         "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = redis_engine_factory(
        config="aof-always",
        settings={
            "tls-port": port, "tls-cert-file": certificate, "tls-key-file": key,
            "tls-ca-cert-file": certificate, "tls-auth-clients": "no",
        },
    )  # fmt: skip
    with api(f"rediss://:{engine.password}@127.0.0.1:{port}/0?ssl_ca_certs={certificate}") as store:
        store.append("s", say("x"))
        assert texts(store.history("s")) == ["x"]
    with pytest.raises(EngineUnreachable, match="nothing was written"):
        api(f"rediss://:{engine.password}@127.0.0.1:{port}/0")


@pytest.mark.parametrize("api", APIS)
def test_valkey_has_a_scheme_of_its_own(valkey_engine_factory: EngineFactory, api: Any):
    engine = valkey_engine_factory(config="aof-always")
    with api(engine.url.replace("redis://", "valkey://")) as store:
        assert store.append("s", say("x")).durability is Durability.DISK


def test_databases_of_one_server_stay_apart(redis_engine_factory: EngineFactory):
    engine = redis_engine_factory(config="aof-always")
    with holdfast.connect(engine.url) as one, holdfast.connect(engine.url[:-1] + "1") as two:
        one.append("s", say("x"))
        assert len(two.history("s")) == 0


@pytest.mark.parametrize("api", APIS)
def test_nobody_at_the_port_is_definite(api: Any):
    with pytest.raises(EngineUnreachable, match="127.0.0.1:1; nothing was written"):
        api("redis://:s3cret@127.0.0.1:1/0")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@h/0/1", "redis://:s3cret@h/x", "redis://:s3cret@h:99999/0",
        "redis://:s3cret@h?colour=red", "redis://:s3cret@h?durability=replica",
        "redis://:s3cret@h?reply_timeout_s=0", "redis://:s3cret@h?connections_max=0",
        "redis+sentinel://:s3cret@h:26379", "redis://:s3cret@h?reply_timeout_s=soon",
        "redis://:s3cret@h?db=3&db=5",
    ],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(url: str):
    with pytest.raises(UsageError) as refusal:
        holdfast.connect(url)
    assert "s3cret" not in str(refusal.value) + repr(refusal.value.__cause__)


class Sentinel:
    """One real sentinel process that watches one primary."""

    def __init__(self, primary: Any, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor memory 127.0.0.1 {primary.port} 1\n"
            f"sentinel auth-pass memory {primary.password}\n"
            "sentinel down-after-milliseconds memory 300\n"
            "sentinel failover-timeout memory 2000\n"
        )
        self.process = subprocess.Popen(
            [str(primary.binary.path), str(config), "--sentinel"], stdout=subprocess.DEVNULL
        )

    def call(self, *words: str) -> Any:
        return redis_call(self.port, *words)

    def knows_a_replica(self) -> bool:
        try:
            return bool(self.call("SENTINEL", "replicas", "memory"))
        except OSError:
            return False


@pytest.fixture
def sentinel(redis_engine_factory: EngineFactory, tmp_path: Path) -> Iterator[tuple[Any, Any, Any]]:
    primary = redis_engine_factory(config="aof-always")
    replica = primary.replica()
    watcher = Sentinel(primary, tmp_path)
    wait_until(watcher.knows_a_replica, within_s=30)
    yield watcher, primary, replica
    watcher.process.kill()
    watcher.process.wait(10)


@pytest.mark.parametrize("api", APIS)
def test_after_a_failover_the_store_goes_on_at_the_new_primary(
    sentinel: tuple[Any, Any, Any], api: Any
):
    watcher, primary, replica = sentinel
    url = f"redis+sentinel://:{primary.password}@127.0.0.1:1,127.0.0.1:{watcher.port}/memory/0"
    with pytest.warns(StorageWarning, match="require=Durability.REPLICA"):
        store = api(url)
    with store:
        for turn in range(5):
            store.append("s", say(str(turn)), key=str(turn))
        wait_until(lambda: replica.call("LLEN", "hf:{default.s}:log") == 5)
        primary.kill()
        wait_until(lambda: appends(store, "after", key="after"), within_s=60)
        assert texts(store.history("s")) == ["0", "1", "2", "3", "4", "after"]
        assert store.append("s", say("4"), key="4").repeated
        assert replica.call("LLEN", "hf:{default.s}:log") == 6


def appends(store: Any, text: str, *, key: str) -> bool:
    try:
        store.append("s", say(text), key=key)
    except HoldfastError:
        return False
    return True


def test_an_unknown_service_is_named(sentinel: tuple[Any, Any, Any]):
    watcher, primary, _ = sentinel
    with pytest.raises(EngineUnreachable, match="'other'"):
        holdfast.connect(f"redis+sentinel://:{primary.password}@127.0.0.1:{watcher.port}/other/0")


def test_the_doctor_looks_at_the_primary_behind_a_sentinel(sentinel: tuple[Any, Any, Any]):
    watcher, primary, _ = sentinel
    found = audit(f"redis+sentinel://:{primary.password}@127.0.0.1:{watcher.port}/memory/0")
    assert found.where == f"127.0.0.1:{primary.port}"
    assert found.sound[Hazard.FAILOVER] is Soundness.UNSOUND
    unknown = audit(f"redis+sentinel://:{primary.password}@127.0.0.1:{watcher.port}/other/0")
    assert unknown.exit_code == 3
