"""The canary: it sees loss, disorder and wrong expiry, and outlives the engine's absences."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast.doctor.canary import MESSAGES_MAX, NAMESPACE, Canary
from holdfast.doctor.tally import Tally
from holdfast.doctor.watching import WatchOptions, watch
from holdfast.errors import UsageError
from holdfast.pytest_plugin import EngineFactory
from holdfast.secrets import SecretUrl
from tests.waiting import wait_until

COMMAND = Path(sys.executable).with_name("holdfast")


class Watching:
    """`holdfast doctor --watch` as a process of its own."""

    def __init__(self, url: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [str(COMMAND), "doctor", url, "--watch", "--metrics", "0",
             "--every", "0.05", *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_until(lambda: any("/metrics" in line for line in self.lines))
        self.page = re.findall(r"http://\S+", " ".join(self.lines))[0]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def metric(self, name: str, **labels: str) -> float:
        with urllib.request.urlopen(self.page, timeout=10) as reply:
            text = reply.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return math.nan

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def started() -> Iterator[list[Watching]]:
    found: list[Watching] = []
    yield found
    for one in found:
        if one.process.poll() is None:
            one.process.kill()
            one.stop()


def test_an_engine_that_is_killed_rings_and_comes_back(
    redis_engine_factory: EngineFactory, started: list[Watching]
):
    engine = redis_engine_factory(config="aof-always")
    watching = Watching(engine.url, "--canary")
    started.append(watching)
    up = lambda: watching.metric("holdfast_canary_up")  # noqa: E731 - read again and again
    # Rounds to their end: the kill may come after an ack and before it was looked for.
    wait_until(lambda: watching.metric("holdfast_canary_round_trip_seconds_count") >= 3)
    assert up() == 1
    assert watching.metric("holdfast_doctor_sound", hazard="sigkill") == 1
    engine.kill()
    wait_until(lambda: up() == 0)
    unreachable = {"error": "EngineUnreachable"}
    wait_until(lambda: watching.metric("holdfast_canary_errors_total", **unreachable) >= 2)
    engine.start()
    wait_until(lambda: up() == 1)
    assert watching.metric("holdfast_canary_lost_total") == 0
    assert watching.metric("holdfast_canary_misordered_total") == 0
    assert watching.metric("holdfast_canary_round_trip_seconds_count") >= 4
    assert abs(watching.metric("holdfast_canary_ttl_drift_seconds")) < 5
    assert watching.stop(signal.SIGINT) == 0
    assert "0 lost" in watching.lines[-1]
    assert any(
        "The canary WRITES: into the namespace holdfast-canary" in line for line in watching.lines
    )
    keys = engine.call("KEYS", "*")
    assert all(key.startswith(f"hf:{{{NAMESPACE}") for key in keys)
    assert not any(key.endswith(":log") for key in keys), "it takes its messages with it"


def test_loss_is_seen_and_is_the_exit_code(
    redis_engine_factory: EngineFactory, started: list[Watching]
):
    engine = redis_engine_factory(config="rdb-only")
    watching = Watching(engine.url, "--canary")
    started.append(watching)
    wait_until(lambda: watching.metric("holdfast_canary_acknowledged_total") >= 3)
    assert watching.metric("holdfast_doctor_sound", hazard="sigkill") == 0
    engine.kill()
    engine.start()
    wait_until(lambda: watching.metric("holdfast_canary_lost_total") >= 3)
    assert watching.stop() == 1
    assert any("BROKEN" in line for line in watching.lines)


@pytest.fixture
def canary(redis_engine_factory: EngineFactory) -> Iterator[tuple[Any, Canary, Tally]]:
    engine, tally = redis_engine_factory(config="aof-always"), Tally()
    found = Canary(engine.url, tally, ttl_s=30)
    found.round()
    yield engine, found, tally
    found.close()


def log_of(session: str) -> str:
    return f"hf:{{{NAMESPACE}.{session.replace('.', '%2E')}}}:log"


def test_disorder_is_seen_once(canary: tuple[Any, Canary, Tally]):
    engine, found, tally = canary
    found.round()
    assert tally.broken == 0
    first, second = engine.call("LRANGE", log_of(found.session), "0", "1")
    engine.call("LSET", log_of(found.session), "0", second)
    engine.call("LSET", log_of(found.session), "1", first)
    found.round()
    found.round()
    assert (tally.misordered, tally.lost, tally.expired_early) == (1, 0, 0)


def test_one_lost_message_is_seen_once(canary: tuple[Any, Canary, Tally]):
    engine, found, tally = canary
    found.round()
    record = engine.call("LINDEX", log_of(found.session), "0")
    engine.call("LSET", log_of(found.session), "1", record)  # the other one is gone
    found.round()
    found.round()
    assert tally.lost == 1


def test_a_session_that_goes_before_its_time_is_seen(canary: tuple[Any, Canary, Tally]):
    engine, found, tally = canary
    found.round()
    assert abs(tally.ttl_drift_s) < 5
    engine.call("DEL", log_of(found.ttl_session))
    found.round()
    assert tally.expired_early == 1
    assert tally.ttl_drift_s < -20
    found.round()
    assert tally.expired_early == 1


def test_a_shortened_time_to_live_is_drift(canary: tuple[Any, Canary, Tally]):
    engine, found, tally = canary
    head = log_of(found.ttl_session).replace(":log", ":head")
    expires_ms = int(engine.call("HGET", head, "exp"))
    engine.call("HSET", head, "exp", str(expires_ms - 20_000))
    found.round()
    assert -25 < tally.ttl_drift_s < -15


def test_a_long_watch_stays_small(canary: tuple[Any, Canary, Tally]):
    engine, found, tally = canary
    for _ in range(MESSAGES_MAX + 20):
        found.round()
    assert int(engine.call("LLEN", log_of(found.session))) < MESSAGES_MAX
    assert tally.acknowledged == MESSAGES_MAX + 21
    assert tally.broken == 0


def test_without_a_canary_nothing_is_written(
    redis_engine_factory: EngineFactory, capsys: pytest.CaptureFixture[str]
):
    engine = redis_engine_factory(config="aof-always")
    assert watch(WatchOptions(SecretUrl(engine.url), every_s=0.01, rounds=3)) == 0
    assert engine.call("DBSIZE") == 0
    assert "nothing is written" in capsys.readouterr().out


def test_a_canary_in_a_file(disk_path: Path, capsys: pytest.CaptureFixture[str]):
    url = f"sqlite:///{disk_path}/memory.db"
    assert watch(WatchOptions(SecretUrl(url), canary=True, every_s=0.01, rounds=2)) == 3, (
        "it creates no file"
    )
    assert list(disk_path.iterdir()) == []
    holdfast.connect(url).close()
    assert watch(WatchOptions(SecretUrl(url), canary=True, every_s=0.01, rounds=3)) == 0
    assert "3 acknowledged, 0 lost" in capsys.readouterr().out


def test_a_canary_in_postgres(postgres_engine: Any, capsys: pytest.CaptureFixture[str]):
    assert (
        watch(WatchOptions(SecretUrl(postgres_engine.url), canary=True, every_s=0.01, rounds=3))
        == 0
    )
    assert "3 acknowledged, 0 lost" in capsys.readouterr().out


def test_a_canary_needs_a_store_of_ours():
    with pytest.raises(UsageError, match="--canary needs a store"):
        watch(WatchOptions(SecretUrl("http://127.0.0.1:1"), canary=True))
