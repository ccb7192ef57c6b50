"""A data directory vanishes or cannot be written, and is itself again afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines import Engine, start_engine
from holdfast.verify.faults import MovedAway, ReadOnly


def test_a_directory_moved_away_is_gone_and_comes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("kept")
    fault = MovedAway(data)
    evidence = fault.apply()
    assert not data.exists()
    assert evidence.facts["inode"] == Path(evidence.facts["kept"]).stat().st_ino
    assert fault.release().facts["made_meanwhile"] == []
    assert (data / "file").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_was_made_in_its_place_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "old").touch()
    with MovedAway(data) as fault:
        data.mkdir()
        (data / "new").touch()
        assert fault.release().facts["made_meanwhile"] == ["new"]
    assert [path.name for path in data.iterdir()] == ["old"]


def test_redis_without_its_directory_cannot_save(redis_server: Engine) -> None:
    assert redis_server.data_dir is not None
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("a", "1")
        with MovedAway(redis_server.data_dir):
            redis_server.stop()
            assert not redis_server.data_dir.exists()
        redis_server.start()
        assert client.get("a") == b"1"


def test_a_missing_directory_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        MovedAway(tmp_path / "none").apply()
    with pytest.raises(UsageError, match="no directory"):
        ReadOnly(tmp_path / "none").apply()


def test_a_mount_point_cannot_be_moved_and_says_so() -> None:
    with pytest.raises(FaultNotProven, match="could not be moved away"):
        MovedAway(Path("/proc")).apply()


def test_a_read_only_directory_takes_nothing_not_even_in_open_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("before")
    with (tmp_path / "below" / "file").open("a") as already_open, ReadOnly(tmp_path) as fault:
        with pytest.raises(OSError, match=r"not permitted|denied"):
            (tmp_path / "new").touch()
        with pytest.raises(OSError, match=r"not permitted|denied"):
            (tmp_path / "below" / "file").write_text("after")
        if fault.mechanism == "immutable" and on_ext4(tmp_path):
            with pytest.raises(PermissionError):
                os.write(already_open.fileno(), b"x")
    (tmp_path / "below" / "file").write_text("after")
    assert fault.apply().facts["errno"] in (errno.EPERM, errno.EACCES)
    fault.release()


def test_modes_are_as_before(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    before = [oct(path.stat().st_mode) for path in (tmp_path, tmp_path / "secret")]
    fault = ReadOnly(tmp_path)
    fault._take_write_bits()
    fault.release()
    assert [oct(path.stat().st_mode) for path in (tmp_path, tmp_path / "secret")] == before


def test_redis_on_a_read_only_directory_fails_its_save(tmp_path: Path) -> None:
    with (
        start_engine("redis", config="rdb-only", storage=tmp_path) as engine,
        redis.Redis.from_url(engine.url) as client,
    ):
        assert engine.data_dir is not None
        client.set("a", "1")
        with ReadOnly(engine.data_dir), pytest.raises(redis.ResponseError):
            client.save()
        assert client.save()


@pytest.mark.parametrize("fault", ["MovedAway", "ReadOnly"])
def test_a_killed_run_leaves_the_directory_as_it_was(tmp_path: Path, fault: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").touch()
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom holdfast.verify import faults\n"
        f"faults.{fault}(Path(sys.argv[1])).apply()\nprint('done', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "done\n"
        os.kill(run.pid, 9)
    await_writable(data)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def await_writable(data: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            (data / "file").write_text("x")
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def on_ext4(path: Path) -> bool:
    done = subprocess.run(
        ["stat", "--file-system", "--format", "%T", path],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.startswith("ext")
