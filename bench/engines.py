"""How fast a real engine is there: ours beside the bare binary and beside other plugins.

The other plugins are installed, at the versions named here, in an environment of their own
in `.cache/bench-engines`, and measured through their own fixtures: from asking for the
fixture to the first answer. Ours keeps fsync on; pytest-postgresql switches it off. The first
PostgreSQL of a process unpacks the template, later ones make a used directory new: both are
shown.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Figure, side_by_side
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.ports import reserve_port
from holdfast.verify.engines.raw_protocol import http_status, redis_call
from holdfast.verify.proof import await_true
from holdfast.verify.run_as import run_as_ids, run_as_user

ROUNDS = 15
SLOW_ROUNDS = 5
KEYS = 1_000
HOME = Path(".cache/bench-engines")
RIVALS = ("pytest-redis==5.0.1", "pytest-postgresql==10.0.0", "psycopg[binary]==3.3.8")

Way = Callable[[], Callable[[], None]]
"""Starts something until it answers; what it returns ends it, outside the time taken."""

RIVAL_TEST = """
import json, os, time
import psycopg, redis
from pytest_postgresql import factories as postgresql
from pytest_redis import factories as redisdb

ROUNDS = 5
for at in range(ROUNDS):
    globals()[f"redis_{at}"] = redisdb.redis_proc(executable=os.environ["REDIS"], port=None)
    globals()[f"postgres_{at}"] = postgresql.postgresql_proc(executable=os.environ["PG_CTL"], port=None)

def test_times(request):
    times = {"redis": [], "postgres": []}
    for at in range(ROUNDS):
        begin = time.perf_counter()
        server = request.getfixturevalue(f"redis_{at}")
        redis.Redis(server.host, server.port).ping()
        times["redis"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        server = request.getfixturevalue(f"postgres_{at}")
        psycopg.connect(host=server.host, port=server.port, user=server.user, dbname="postgres").execute("SELECT 1")
        times["postgres"].append(time.perf_counter() - begin)
    with open(os.environ["TIMES"], "w") as out:
        json.dump(times, out)
"""


def run() -> Iterator[Figure]:
    """Every figure of starting engines and of bringing them back."""
    start_engine("postgres").close()  # makes the template, once for this user
    yield from _redis_beside_the_bare_binary()
    yield from _beside_other_plugins()
    yield _chroma_beside_its_command()
    yield from _crash_to_answer()


def _redis_beside_the_bare_binary() -> Iterator[Figure]:
    for version in ("7", "6.2"):
        bare: Way = functools.partial(_bare_redis, version)
        ways = {"ours": _start(f"redis {version}"), "bare": bare}
        taken = _side_by_side(ways, rounds=ROUNDS)
        ours_ms, bare_ms = taken["ours"] * 1000, taken["bare"] * 1000
        yield Figure(
            f"Redis {version}: (start - 5 ms) / bare exec of the same binary",
            (ours_ms - 5) / bare_ms,
            at_most=1.5,
            detail=f"ours {ours_ms:.1f} ms, bare {bare_ms:.1f} ms",
        )


def _beside_other_plugins() -> Iterator[Figure]:
    theirs = _rivals()
    ours = _side_by_side({"redis": _start("redis"), "postgres": _start("postgres")}, rounds=ROUNDS)
    ours |= _side_by_side({"postgres on disk": _start("postgres", storage="disk")}, rounds=ROUNDS)
    ours |= _first_postgres()
    for name in ours:
        rival = "pytest-redis 5" if name == "redis" else "pytest-postgresql 10"
        their_ms, our_ms = theirs[re.split(r"\W", name)[0]] * 1000, ours[name] * 1000
        yield Figure(
            f"{name}: {rival} / ours" + (", fsync on" if "postgres" in name else ""),
            their_ms / our_ms,
            at_least=5,
            detail=f"theirs {their_ms:.0f} ms, ours {our_ms:.1f} ms",
        )


def _first_postgres() -> dict[str, float]:
    """In a directory of the caller's nothing is reused: each start unpacks the template.

    As with the other plugin's fixtures, all are ended at the end: on a disk, what was just
    removed slows down what is made next.
    """
    taken: dict[str, float] = {}
    with _reachable("/dev/shm") as memory, _reachable(None) as disk, ExitStack() as started:
        for name, place in (("memory", memory), ("disk", disk)):

            def start(place: str = place) -> None:
                started.callback(start_engine("postgres", storage=place).close)

            taken |= side_by_side({f"postgres, first, {name}": start}, rounds=SLOW_ROUNDS)
    return taken


@contextmanager
def _reachable(parent: str | None) -> Iterator[str]:
    """A directory that the user of PostgreSQL can pass through."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        Path(folder).chmod(0o711)
        yield folder


def _chroma_beside_its_command() -> Figure:
    taken = _side_by_side({"ours": _start("chroma"), "theirs": _chroma_run}, rounds=SLOW_ROUNDS)
    return Figure(
        "Chroma: plain `chroma run` / ours",
        taken["theirs"] / taken["ours"],
        at_least=5,
        detail=f"theirs {taken['theirs'] * 1000:.0f} ms, ours {taken['ours'] * 1000:.0f} ms",
    )


def _crash_to_answer() -> Iterator[Figure]:
    for kind, storage, most_ms in (
        ("redis", "memory", 50),
        ("redis", "disk", 50),
        ("postgres", "memory", 400),
        ("postgres", "disk", 400),
    ):
        times = sorted(_crash(kind, storage))
        yield Figure(
            f"{kind}: SIGKILL to answering again, data in {storage}",
            statistics.median(times) * 1000,
            at_most=most_ms,
            unit="ms",
            detail=f"median of {len(times)}, worst {times[-1] * 1000:.0f} ms; {KEYS} writes in it",
        )


def _start(name: str, **wanted: Any) -> Way:
    kind, _, version = name.partition(" ")
    return lambda: start_engine(kind, version=version or None, **wanted).close


def _side_by_side(ways: dict[str, Way], *, rounds: int) -> dict[str, float]:
    """Median seconds of each way, in turns; what each started is ended between the turns."""
    endings: list[Callable[[], None]] = []

    def timed(way: Way) -> Callable[[], None]:
        return lambda: endings.append(way())

    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(side_by_side({name: timed(way)}, rounds=1)[name])
            endings.pop()()
    return {name: statistics.median(times) for name, times in taken.items()}


def _bare_redis(version: str) -> Callable[[], None]:
    """The floor: exec with the same settings, then ask until it answers."""
    port = reserve_port()
    folder = tempfile.mkdtemp(dir="/dev/shm")
    settings = ["--port", str(port.number), "--bind", "127.0.0.1", "--dir", folder]
    settings += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    process = subprocess.Popen(
        [choose_binary("redis", version).path, *settings], stdout=subprocess.DEVNULL, cwd=folder
    )
    assert await_true(lambda: redis_call(port.number, "PING") == "PONG", 30, poll_s=0.0002)
    return lambda: _end(process, folder)


def _chroma_run() -> Callable[[], None]:
    port = reserve_port()
    folder = tempfile.mkdtemp(dir="/dev/shm")
    command = [str(Path(sys.executable).with_name("chroma")), "run"]
    process = subprocess.Popen(
        [*command, "--path", folder, "--port", str(port.number), "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    path = "/api/v2/heartbeat"
    assert await_true(lambda: http_status(port.number, path) == 200, 60)
    return lambda: _end(process, folder)


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    shutil.rmtree(folder)


def _crash(kind: str, storage: str) -> Iterator[float]:
    engine: Any = start_engine(kind, storage=storage)
    with engine:
        for number in range(KEYS if kind == "redis" else 0):
            engine.call("RPUSH", f"session {number % 10}", "x" * 200)
        if kind == "postgres":
            engine.query("CREATE TABLE memory (text text)")
        for _ in range(ROUNDS):
            if kind == "postgres":
                engine.query(
                    f"INSERT INTO memory SELECT repeat('x', 200) FROM generate_series(1, {KEYS})"
                )
            begin = time.perf_counter()
            engine.kill()
            engine.start()
            yield time.perf_counter() - begin


def _rivals() -> dict[str, float]:
    """Median seconds of the other plugins' own fixtures, in their own environment."""
    python = _rival_python()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.joinpath("test_times.py").write_text(RIVAL_TEST)
        for path in (place, place / "test_times.py"):
            os.chown(path, *run_as_ids())
        postgres = choose_binary("postgres").path.resolve()
        environment = {
            "PATH": os.environ["PATH"],
            "REDIS": str(choose_binary("redis").path),
            "PG_CTL": str(postgres.with_name("pg_ctl")),
            "TIMES": str(place / "times.json"),
        }
        options = ["-q", "-p", "no:cacheprovider", f"--basetemp={place}/tmp", "--rootdir", folder]
        command = run_as_user([str(python), "-m", "pytest", *options, "test_times.py"])
        subprocess.run(
            command, cwd=place, env=environment, check=True, stdout=sys.stderr, timeout=300
        )
        times = json.loads((place / "times.json").read_text())
    return {name: statistics.median(values) for name, values in times.items()}


def _rival_python() -> Path:
    """The Python of the other plugins' environment, which is made once.

    PostgreSQL does not run as root, and pytest-postgresql then has to run as that other user
    as a whole: so its Python must not be below a home directory.
    """
    python = HOME.absolute() / "bin/python"
    made = HOME / ".made"
    if not made.exists() or made.read_text() != " ".join(RIVALS):
        shutil.rmtree(HOME, ignore_errors=True)
        subprocess.run([_reachable_python(), "-m", "venv", HOME], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *RIVALS], check=True)
        made.write_text(" ".join(RIVALS))
    return python


def _reachable_python() -> str:
    """A Python that is the same one for us and for the user that PostgreSQL runs as."""
    base = str(Path(sys.base_prefix) / "bin/python3")
    for candidate in (base, "/usr/bin/python3"):
        ask = [candidate, "-c", "import sys, venv, ensurepip; print(sys.version, sys.prefix)"]
        told = [
            subprocess.run(command, check=False, capture_output=True, cwd="/", timeout=60)
            for command in (ask, run_as_user(ask))
        ]
        if told[0].returncode == told[1].returncode == 0 and told[0].stdout == told[1].stdout:
            return candidate
    raise SystemExit(
        "pytest-postgresql cannot be measured: the user that PostgreSQL runs as can run neither "
        f"{base} nor /usr/bin/python3. Install python3-venv, or run this as an ordinary user."
    )
