"""PostgreSQL as real processes: templates, crashes, configurations, a replica."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import EngineFailed
from holdfast.linux import is_gone
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.engines.raw_protocol import ReplyError
from holdfast.verify.engines.redis import RedisEngine


def _setting(engine: Any, name: str) -> str:
    return str(engine.query(f"SHOW {name}")[0][0])


def test_the_default_keeps_fsync_and_synchronous_commit_on(postgres_engine: PostgresEngine) -> None:
    assert _setting(postgres_engine, "fsync") == "on"
    assert _setting(postgres_engine, "synchronous_commit") == "on"
    assert _setting(postgres_engine, "full_page_writes") == "on"


@pytest.mark.parametrize(
    ("config", "name"), [("synchronous-commit-off", "synchronous_commit"), ("fsync-off", "fsync")]
)
def test_a_configuration_is_in_force(
    postgres_engine_factory: EngineFactory, config: str, name: str
) -> None:
    assert _setting(postgres_engine_factory(config=config), name) == "off"


def test_it_never_runs_as_root(postgres_engine: PostgresEngine) -> None:
    assert Path(f"/proc/{postgres_engine.pid}").stat().st_uid != 0


def test_without_setpriv_it_runs_as_an_ordinary_user_too(
    postgres_engine_factory: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    engine = postgres_engine_factory()
    status = Path(f"/proc/{engine.pid}/status").read_text()
    (ids,) = (line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    assert "0" not in ids


def test_every_engine_is_new(postgres_engine_factory: EngineFactory) -> None:
    postgres_engine_factory().query("CREATE TABLE memory (text text)")
    with pytest.raises(ReplyError, match="does not exist"):
        postgres_engine_factory().query("TABLE memory")


def test_committed_rows_survive_sigkill(postgres_engine: PostgresEngine) -> None:
    postgres_engine.query("CREATE TABLE memory (text text)")
    postgres_engine.query("INSERT INTO memory VALUES ('here')")
    evidence = postgres_engine.kill()
    assert len(evidence.facts["pids"]) > 1, "the children are killed too"
    assert all(is_gone(pid) for pid in evidence.facts["pids"])
    assert postgres_engine.start().query("TABLE memory") == [("here",)]


def test_it_starts_again_after_a_kill_in_the_middle_of_work(
    postgres_engine: PostgresEngine,
) -> None:
    """A backend that outlived its postmaster would make every next start fail."""
    begun = threading.Event()

    def work() -> str:
        begun.set()
        with pytest.raises(OSError, match=r"ended|reset"):
            postgres_engine.query("SELECT count(*) FROM generate_series(1, 1e9)")
        return "cut off"

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in range(3):
            begun.clear()
            client = pool.submit(work)
            begun.wait(10)
            active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series(1%'"
            while postgres_engine.query(active + " AND pid <> pg_backend_pid()") == [("0",)]:
                assert not client.done(), client.result()
            postgres_engine.kill()
            assert client.result(10) == "cut off"
            postgres_engine.start()


def test_pause_holds_every_process_of_it(postgres_engine: PostgresEngine) -> None:
    evidence = postgres_engine.pause()
    states = evidence.facts["states"]
    assert len(states) > 1
    assert all(set(seen) <= {"T", "Z"} for seen in states.values())
    postgres_engine.resume()
    assert postgres_engine.query("SELECT 1") == [("1",)]


def test_a_kill_leaves_no_shared_memory_behind(postgres_engine: PostgresEngine) -> None:
    lines = (postgres_engine.data_dir / "postmaster.pid").read_text().splitlines()
    segment = lines[6].split()[1]
    assert segment in _segments()
    postgres_engine.kill()
    assert segment not in _segments()


def _segments() -> set[str]:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line.split()[1] for line in lines}


def test_a_replica_can_be_held_delayed_and_let_go(postgres_engine_factory: EngineFactory) -> None:
    primary = postgres_engine_factory(config="replica")
    (replica,) = primary.replicas
    assert replica.query("SELECT pg_is_in_recovery()") == [("t",)]
    primary.query("CREATE TABLE memory (text text)")
    replica.resume_replay()
    replica.pause_replay()
    primary.query("INSERT INTO memory VALUES ('here')")
    assert replica.query("TABLE memory") == []
    replica.resume_replay()
    assert replica.query("TABLE memory") == [("here",)]
    replica.delay(3600)
    primary.query("INSERT INTO memory VALUES ('late')")
    assert replica.query("TABLE memory") == [("here",)]
    replica.delay(0)
    replica.resume_replay()
    assert replica.query("TABLE memory") == [("here",), ("late",)]


def test_a_replica_follows_again_after_the_primary_was_killed(
    postgres_engine: PostgresEngine,
) -> None:
    replica = postgres_engine.replica(apply_delay_s=0.01)
    assert _setting(replica, "recovery_min_apply_delay") == "10ms"
    postgres_engine.kill()
    postgres_engine.start()
    postgres_engine.query("CREATE TABLE memory (text text)")
    replica.resume_replay()
    assert replica.query("TABLE memory") == []


def test_a_closed_replica_leaves_no_slot_on_its_primary(postgres_engine: PostgresEngine) -> None:
    replica = postgres_engine.replica()
    assert postgres_engine.query("SELECT count(*) FROM pg_replication_slots") == [("1",)]
    replica.close()
    assert postgres_engine.query("SELECT count(*) FROM pg_replication_slots") == [("0",)]


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"no_such": "1"}, "unrecognized configuration parameter"), ({"fsync": "perhaps"}, "fsync")],
)
def test_a_bad_setting_fails_with_the_engines_own_words(
    postgres_engine_factory: EngineFactory, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(EngineFailed, match=says):
        postgres_engine_factory(settings=settings)


def test_a_taken_port_fails_with_the_engines_own_words(
    redis_engine: RedisEngine, postgres_engine_factory: EngineFactory
) -> None:
    with pytest.raises(EngineFailed, match="Address already in use"):
        postgres_engine_factory(port=redis_engine.port)


def test_on_a_disk_it_runs_on_a_disk(postgres_engine_factory: EngineFactory) -> None:
    from holdfast.linux import file_system_of  # noqa: PLC0415 - one use

    assert file_system_of(postgres_engine_factory(storage="disk").data_dir) != "tmpfs"


def test_several_processes_that_make_the_template_at_once_make_one(tmp_path: Path) -> None:
    """Each must get a working engine, and none may find half a template."""
    script = (
        "from holdfast.verify.engines import start_engine\n"
        "with start_engine('postgres') as engine: print(engine.query('SELECT 42')[0][0])\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    runs = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [run.communicate(timeout=60)[0].strip() for run in runs] == [b"42"] * 3
    names = sorted(path.suffix for path in (tmp_path / "holdfast").iterdir())
    assert names == [".lock", ".lock", ".password", ".template"]


def test_with_the_template_there_initdb_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    start_engine("postgres").close()
    from holdfast.verify.engines import template  # noqa: PLC0415 - its parts are replaced here

    def never(*_: object) -> None:
        pytest.fail("initdb ran although the template was there")

    monkeypatch.setattr(template, "_make_template", never)
    start_engine("postgres").close()
