"""The compose files of the topologies: sound by the doctor, good for Compose, and they do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.doctor import Hazard, Soundness
from holdfast.doctor.manifest import look_at
from holdfast.errors import EngineMissing
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.compose import compose_command
from tests.examples.namespaces import PASSWORD, Services, is_possible

FOLDER = Path(__file__).parents[2] / "examples" / "compose"
FILES = sorted(FOLDER.glob("*.yaml"))
CLIENT = Path(__file__).with_name("compose_client.py")
ENGINES = {
    "redis-sentinel": 3, "redis-cluster": 9, "postgres-standby": 3, "postgres-patroni": 3,
}  # fmt: skip
SOON = {"memory 5000": "memory 500", "memory 15000": "memory 1500", "timeout 5000": "timeout 1000"}
"""Nobody is waited for as long as in production."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_doctor_finds_nothing_wrong_with_it(file: Path):
    found = look_at(file)
    assert found.findings == ()
    assert found.exit_code == 0
    assert found.sound[Hazard.REPLACEMENT] is Soundness.SOUND
    assert len(found.facts) == ENGINES[file.stem], "each engine is seen, and no sentinel is one"


def test_compose_can_read_them():
    """In one call, which is what takes long: it reads each, and joins them."""
    try:
        command = compose_command()
    except EngineMissing as error:
        pytest.skip(str(error))
    secret = dict.fromkeys(("REDIS_PASSWORD", "POSTGRES_PASSWORD"), "x")
    files = [word for file in FILES for word in ("--file", str(file))]
    done = subprocess.run(
        [*command, *files, "config", "--quiet"],
        env={**os.environ, **secret},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def url_of(file: Path) -> str:
    """The URL that the file's first lines name."""
    [found] = re.findall(r"^#   ((?:redis\+|postgresql)\S+)$", file.read_text(), re.MULTILINE)
    return str(found.replace("PASSWORD", PASSWORD))


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the server's user may go, too."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-compose-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def programs() -> dict[str, Path]:
    redis = choose_binary("redis").path
    postgres = choose_binary("postgres").path.resolve().parent
    names = ("postgres", "initdb", "pg_basebackup")
    cli = shutil.which("redis-cli") or redis.with_name("redis-cli")
    return {
        "redis-server": redis,
        "redis-sentinel": redis,
        "redis-cli": Path(cli),
        **{name: postgres / name for name in names},
    }


@pytest.mark.skipif(not is_possible(), reason="namespaces of the network are root's to make")
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "redis-sentinel",
            {"replica": 2, "sentinel .* 2 replica": 3, "sentinels: 3 of 3 answer": 1},
        ),
        ("redis-cluster", {"primary": 3, "replica": 6, "cluster: state ok, 3 primaries": 1}),
        ("postgres-standby", {"member": 3, "standby": 2, "a failover now loses nothing": 1}),
    ],
)
def test_its_commands_make_the_service_that_it_says(home: Path, name: str, lines: dict[str, int]):
    file = FOLDER / f"{name}.yaml"
    with Services(file, home, programs(), SOON) as services:

        def ask(key: str, lines: dict[str, int]) -> Any:
            done = services.python(str(CLIENT), url_of(file), key, json.dumps(lines))
            assert done.returncode == 0, f"{done.stderr}\n{services.log()}"
            return json.loads(done.stdout)

        first = ask("1", lines)
        assert first["level"] == "REPLICA"
        counts = {
            word: sum(bool(re.match(word, line)) for line in first["topology"]) for word in lines
        }
        assert counts == lines, first["topology"]
        if name == "redis-sentinel":
            services.kill("redis1")
            services.kill("sentinel1")
            after = ask("2", {"primary": 1, "replica": 1})
            assert after["texts"] == ["1", "2"]
            assert after["topology"][0] in {"primary redis2:6379", "primary redis3:6379"}
