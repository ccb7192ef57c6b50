"""A used PostgreSQL directory that is made new again is exactly the template."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import EngineFailed
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines import start_engine, template
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.postgres import PostgresEngine, _spares
from holdfast.verify.engines.template import ClusterFiles
from holdfast.verify.run_as import run_as_ids, run_as_user

Contents = dict[str, tuple[int, int, bytes | None]]


@pytest.fixture
def files() -> ClusterFiles:
    return ClusterFiles(choose_binary("postgres").path.resolve(), run_as_user, run_as_ids())


def _contents(data_dir: Path) -> Contents:
    return {
        str(path.relative_to(data_dir)): (
            path.lstat().st_mode,
            path.lstat().st_uid,
            path.read_bytes() if path.is_file() else None,
        )
        for path in data_dir.rglob("*")
    }


def _flip_and_hide(data_dir: Path) -> None:
    """A bit is flipped and every time that a program can set is put back."""
    victim = data_dir / "base/1/1255"
    data = bytearray(victim.read_bytes())
    data[5000] ^= 1
    victim.write_bytes(data)
    os.utime(victim, ns=(0, 0))


def _exchange(data_dir: Path) -> None:
    first, second, third = (data_dir / f"base/1/{name}" for name in ("1255", "1259", "third"))
    first.rename(third)
    second.rename(first)
    third.rename(second)


def _empty(data_dir: Path) -> None:
    for path in (data_dir / "pg_xact").iterdir():
        path.unlink()


def _link(data_dir: Path) -> None:
    (data_dir / "base/1/1255").unlink()
    (data_dir / "base/1/1255").symlink_to("/etc/hostname")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bit flipped": _flip_and_hide,
    "two files exchanged": _exchange,
    "file removed": lambda d: (d / "global/pg_control").unlink(),
    "file cut short": lambda d: os.truncate(d / "base/1/1259", 10),
    "file added": lambda d: (d / "base/1/99999").write_bytes(b"x"),
    "directory added": lambda d: (d / "base/777/deep").mkdir(parents=True),
    "directory emptied": _empty,
    "link in place of a file": _link,
    "mode changed": lambda d: (d / "base/1/1255").chmod(0o666),
    "mode of a directory changed": lambda d: (d / "base").chmod(0o755),
}


@pytest.fixture(autouse=True)
def no_spares() -> None:
    for run_dir, _ in _spares._own():
        run_dir.clear()
    _spares._kept.clear()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory of the caller's that PostgreSQL's user can reach; pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_happened_the_files_are_new_again(
    files: ClusterFiles, tmp_path: Path, damage: str
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    files.make_new(data_dir)
    new = _contents(data_dir)
    assert len(new) > 900
    DAMAGE[damage](data_dir)
    assert _contents(data_dir) != new
    files.make_new(data_dir)
    assert _contents(data_dir) == new


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could be led to what belongs to others")
@pytest.mark.parametrize("name", ["base", "base/1"])
def test_a_link_that_the_servers_user_puts_in_the_way_leads_root_nowhere(
    files: ClusterFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    outside, data_dir = tmp_path / "outside", tmp_path / "data"
    (outside / "1").mkdir(parents=True, mode=0o755)
    (outside / "1" / "1255").write_text("root's own")
    data_dir.mkdir()
    files.make_new(data_dir)
    remove_others = template._remove_others

    def and_then_a_link(folder: int, inside: str, *more: set[str]) -> None:
        remove_others(folder, inside, *more)
        if not inside and not (data_dir / name).is_symlink():  # all is looked at, nothing made yet
            (data_dir / name).rename(tmp_path / "away")
            (data_dir / name).symlink_to(outside)

    monkeypatch.setattr(template, "_remove_others", and_then_a_link)
    with contextlib.suppress(OSError):
        files.make_new(data_dir)
    assert (data_dir / name).is_symlink()
    found = {path: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in outside.rglob("*")}
    assert found == {outside / "1": (0, 0o755), outside / "1" / "1255": (0, 0o644)}
    assert (outside.stat().st_uid, outside.stat().st_mode & 0o777) == (0, 0o755)


def test_a_template_holds_nothing_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's own")
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    (cluster / "PG_VERSION").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="PG_VERSION"):
        template._pack(cluster, tmp_path / "made.template")
    assert sorted(tmp_path.iterdir()) == [cluster, tmp_path / "secret"]


def test_after_real_use_and_a_kill_the_next_engine_has_new_files(
    postgres_engine_factory: EngineFactory,
) -> None:
    used: PostgresEngine = postgres_engine_factory()
    used.query("CREATE DATABASE other")
    used.query("CREATE TABLE memory AS SELECT repeat('x', 500) FROM generate_series(1, 20000)")
    used.query("CREATE ROLE somebody")
    used.query("ALTER SYSTEM SET work_mem = '1MB'")
    used.query("VACUUM FULL pg_class")
    used.kill()
    home = used.data_dir.parent
    used.close()
    assert not home.exists()
    ((spare, _),) = _spares._own()
    engine: PostgresEngine = postgres_engine_factory()
    assert engine.data_dir.parent == spare.path != home
    assert _spares._own() == []
    assert engine.query("SELECT datname FROM pg_database ORDER BY 1") == [
        ("postgres",),
        ("template0",),
        ("template1",),
    ]
    assert engine.query("SELECT count(*) FROM pg_roles WHERE rolname = 'somebody'") == [("0",)]
    assert engine.query("SHOW work_mem") == [("4MB",)]
    assert "shut down" in engine.log(200)
    assert "not properly" not in engine.log(200)


def test_a_directory_that_was_moved_away_is_not_kept(
    postgres_engine_factory: EngineFactory,
) -> None:
    engine: PostgresEngine = postgres_engine_factory()
    engine.stop()
    engine.data_dir.rename(engine.data_dir.with_name("elsewhere"))
    engine.close()
    assert _spares._own() == []


def test_nothing_stays_in_a_directory_of_the_callers(reachable: Path) -> None:
    start_engine("postgres", storage=reachable).close()
    assert list(reachable.iterdir()) == []
    assert _spares._own() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands PostgreSQL to another user")
def test_a_directory_that_its_user_cannot_reach_is_explained(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(EngineFailed, match=r"runs as user \d+ here, who must be able to reach"):
        start_engine("postgres", storage=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_more_than_two_are_kept(postgres_engine_factory: EngineFactory) -> None:
    engines = [postgres_engine_factory() for _ in range(3)]
    for engine in engines:
        engine.close()
    assert len(_spares._own()) == 2
    assert len({run_dir.path for run_dir, _ in _spares._own()}) == 2


def test_engines_that_are_started_at_once_share_no_directory(
    postgres_engine_factory: EngineFactory,
) -> None:
    for engine in [postgres_engine_factory(), postgres_engine_factory()]:
        engine.close()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(lambda _: start_engine("postgres"), range(4)))
    try:
        assert len({engine.data_dir for engine in engines}) == 4
    finally:
        for engine in engines:
            engine.close()
