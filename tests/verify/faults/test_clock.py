"""A clock is moved while its engine runs, and what the engine says the time is proves it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.errors import FaultNotProven, UsageError, VerifyError
from holdfast.verify import shims
from holdfast.verify.clock import DAY_S, Clock
from holdfast.verify.engines import Clocked, open_engine, start_engine
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.instrument import Launch
from holdfast.verify.shims import build


@pytest.mark.parametrize("kind", ["redis", "valkey", "postgres", "sqlite"])
def test_an_engine_goes_on_by_a_moved_clock_forward_and_back(kind: str):
    with start_engine(kind, clock=True) as engine:
        assert isinstance(engine, Clocked)
        for by_s, offset_s in (
            (6 * DAY_S, 6 * DAY_S),
            (-9 * DAY_S, -3 * DAY_S),
            (0.25, -259199.75),
        ):
            evidence = engine.move_clock(by_s)
            assert evidence.fault == "clock"
            assert evidence.facts["offset_s"] == offset_s
            assert abs(evidence.facts["seen_s"] - offset_s) < 1


def test_seven_days_to_live_are_over_in_milliseconds(tmp_path: Path):
    engine = open_engine("redis", clock=True, storage=tmp_path)
    assert isinstance(engine, RedisEngine)
    with engine:
        engine.call("SET", "session", "Xiao Li", "EX", str(7 * 86_400))
        engine.move_clock(6 * DAY_S)
        assert 86_300 < int(engine.call("TTL", "session")) <= 86_400
        engine.move_clock(2 * DAY_S)
        assert engine.call("GET", "session") is None
    assert list(tmp_path.iterdir()) == []


def test_a_restart_keeps_the_clock_where_it_was():
    with start_engine("redis", clock=True) as engine:
        assert isinstance(engine, RedisEngine)
        engine.move_clock(3 * DAY_S)
        engine.restart()
        assert abs(engine.move_clock(0).facts["seen_s"] - 3 * DAY_S) < 1


def test_two_clocks_are_two_hosts(tmp_path: Path):
    ahead, behind = Clock(tmp_path, "ahead"), Clock(tmp_path, "behind")
    ahead.move(60)
    behind.move(-60)
    assert 118 < ahead.ask() - behind.ask() < 122


def test_the_clock_of_an_engine_that_was_ordered_without_one_stays(redis_engine: RedisEngine):
    with pytest.raises(UsageError, match="clock=True"):
        redis_engine.move_clock(1)


def test_whoever_ignores_the_preload_is_noticed(tmp_path: Path):
    with pytest.raises(FaultNotProven, match="ignores the preload"):
        Clock(tmp_path).move(DAY_S, time.time)


def test_a_static_program_is_noticed(tmp_path: Path):
    source = '#include <stdio.h>\n#include <time.h>\nint main(void) { printf("%ld", time(0)); }\n'
    (tmp_path / "now.c").write_text(source)
    subprocess.run(["cc", "-static", "now.c", "-o", "now"], cwd=tmp_path, check=True)
    clock = Clock(tmp_path)

    def ask() -> float:
        launch = clock.wrap(Launch((str(tmp_path / "now"),), {}))
        done = subprocess.run(
            launch.command, env=launch.environment, capture_output=True, check=True
        )
        return float(done.stdout)

    with pytest.raises(FaultNotProven, match="statically linked"):
        clock.move(DAY_S, ask)


def test_a_cluster_or_a_container_has_no_clock_of_ours():
    with pytest.raises(UsageError, match="several clocks"):
        open_engine("redis", config="cluster", clock=True)
    with pytest.raises(UsageError, match="provider local"):
        open_engine("redis", provider="docker", clock=True)


def test_without_library_and_compiler_the_fault_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "file_name", lambda name: f"{name}-absent.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(VerifyError, match="no C compiler here .*apt-get install gcc"):
        start_engine("redis", clock=True)


def test_a_missing_library_is_built_at_first_use_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "file_name", lambda name: f"{name}-again.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = shims.library("clock")
    assert first.parent == tmp_path / "holdfast" / "shims"
    changed = first.stat().st_mtime_ns
    assert shims.library("clock") == first
    assert first.stat().st_mtime_ns == changed


def test_the_installed_package_has_every_library():
    for name in build.NAMES:
        assert shims.library(name).parent == build.SOURCES


def test_a_wheel_carries_the_libraries_and_needs_no_compiler(tmp_path: Path):
    root = Path(__file__).parents[3]
    make = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*make, "--wheel-dir", tmp_path, root], check=True, stderr=subprocess.DEVNULL)
    [wheel] = tmp_path.glob("holdfast-*.whl")
    assert "-py3-none-" in wheel.name
    assert "linux_" in wheel.name
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    program = (
        "from holdfast.verify.clock import Clock; from pathlib import Path; "
        "print(Clock(Path('.')).move(86400).seen)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "CC": "no-such-compiler", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("moved by +1 days"), done.stderr
