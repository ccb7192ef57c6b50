"""Another user of the machine gets into no engine of a check, and finds no way in."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import VerifyError
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.raw_protocol import ReplyError, postgres_query, redis_call
from holdfast.verify.rundir import RunDir, cache_dir
from holdfast.verify.shims import library

IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")

KINDS = ["redis", "valkey", "postgres"]

INTRUDER = """
import os, sys
folder, port, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
from holdfast.verify.engines.raw_protocol import postgres_query, redis_call
try:
    print(redis_call(port, "CONFIG", "GET", "dir") if kind != "postgres"
          else postgres_query(port, "SELECT current_user"))
except OSError as error:
    print("refused:", error)
try:
    print("listed:", os.listdir(folder))
except PermissionError:
    print("closed")
words = b""
for pid in filter(str.isdigit, os.listdir("/proc")):
    for part in ("cmdline", "environ"):
        try:
            with open(f"/proc/{pid}/{part}", "rb") as file:
                words += file.read()
        except OSError:
            pass
print("engine seen" if folder.encode() in words else "engine not seen")
print("password seen" if sys.stdin.buffer.read() in words else "password not seen")
"""


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start_engine(request.param) as engine:
        yield engine


def test_an_engine_answers_nobody_who_does_not_know_its_password(engine: Any) -> None:
    with pytest.raises(ReplyError):
        if engine.kind == "postgres":
            postgres_query(engine.port, "SELECT 1")
        else:
            redis_call(engine.port, "PING")
    with pytest.raises(ReplyError, match=r"(?i)password"):
        if engine.kind == "postgres":
            postgres_query(engine.port, "SELECT 1", password="guessed")
        else:
            redis_call(engine.port, "PING", password="guessed")


@as_root
def test_another_user_can_neither_ask_an_engine_nor_look_for_its_password(engine: Any) -> None:
    nobody = pwd.getpwnam("nobody")
    ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    told = [str(engine.data_dir.parent), str(engine.port), engine.kind]
    done = subprocess.run(
        ["setpriv", *ids, sys.executable, "-c", INTRUDER, *told],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        input=engine.password,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    answer, *found = done.stdout.splitlines()
    assert answer.startswith("refused:"), answer
    assert found == ["closed", "engine seen", "password not seen"]


def test_a_replica_and_every_node_of_a_cluster_ask_for_it_too() -> None:
    primary: Any = start_engine("redis")
    cluster: Any = start_engine("redis", config="cluster")
    server: Any = start_engine("postgres", config="replica")
    with primary, cluster, server:
        for engine in (primary.replica(), *cluster.nodes):
            with pytest.raises(ReplyError, match="NOAUTH"):
                redis_call(engine.port, "PING")
        [replica] = server.replicas
        with pytest.raises(ReplyError):
            postgres_query(replica.port, "SELECT 1")
        assert replica.query("SELECT 1") == [("1",)]


def test_a_run_directory_is_closed_to_others() -> None:
    run_dir = RunDir("memory")
    try:
        found = run_dir.path.stat()
        assert not found.st_mode & stat.S_IRWXO, oct(found.st_mode)
        assert not found.st_mode & (stat.S_IRGRP | stat.S_IWGRP), oct(found.st_mode)
        assert found.st_uid == os.geteuid()
    finally:
        run_dir.clear()


def test_what_is_kept_for_later_runs_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template is a program: who can write one chooses what the next server runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "holdfast").mkdir(mode=0o755)
    engine: Any = start_engine("postgres")
    with engine:
        assert engine.query("SELECT 1") == [("1",)]
    assert stat.S_IMODE((tmp_path / "holdfast").stat().st_mode) == 0o700


@as_root
def test_a_cache_that_another_user_made_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "holdfast").mkdir()
    os.chown(tmp_path / "holdfast", pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(VerifyError, match="belongs to another user"):
        cache_dir()
    with pytest.raises(VerifyError, match="belongs to another user"):
        start_engine("postgres")
    assert library("clock").exists(), "what the package carries itself needs no cache"
