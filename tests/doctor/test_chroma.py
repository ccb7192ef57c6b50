"""Chroma, as a server and as a directory."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.doctor import Hazard, Severity, Soundness, audit
from tests.doctor.conftest import OnDisk, about, verdicts

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness
HOME = "/api/v2/tenants/default_tenant/databases/default_database/collections"


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read() or b"null")


@pytest.fixture
def chroma(on_disk: OnDisk) -> Any:
    """A server with one collection of twenty records, whose index is persisted after ten."""
    engine = on_disk("chroma")
    settings = {"hnsw": {"sync_threshold": 10, "batch_size": 5}}
    made = post(engine.url + HOME, {"name": "chat", "configuration": settings})
    vectors = [[float(at), 1.0] for at in range(20)]
    ids = [str(at) for at in range(20)]
    post(f"{engine.url}{HOME}/{made['id']}/add", {"ids": ids, "embeddings": vectors})
    return engine


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_server_and_its_directory(chroma: Any):
    before = contents(chroma.data_dir)
    found = audit(chroma.url)
    assert verdicts(found) == (SOUND, UNSOUND)
    assert "the whole of chat" in about(found, Hazard.POWER)
    assert found.facts["collection chat"] == "20 record(s), index persisted after 10"
    assert found.facts["directory"] == str(chroma.data_dir)
    assert contents(chroma.data_dir) == before, "it only looks"
    directory = audit(f"chroma:///{chroma.data_dir}")
    assert directory.sound == found.sound
    assert directory.sound[Hazard.CONCURRENCY] is SOUND
    assert f"({chroma.pid})" in directory.facts["open in"]


def test_several_processes_on_one_directory(chroma: Any):
    code = f"open({str(chroma.data_dir / 'chroma.sqlite3')!r}); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-Wignore", "-c", f"f = {code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = audit(f"chroma:///{chroma.data_dir}")
        other.kill()
    assert found.sound[Hazard.CONCURRENCY] is UNSOUND
    assert str(other.pid) in about(found, Hazard.CONCURRENCY)


def test_an_index_emptied_by_a_power_cut_is_damage(chroma: Any):
    chroma.stop()
    assert audit(f"chroma:///{chroma.data_dir}").sound[Hazard.DAMAGE] is SOUND
    [header] = chroma.data_dir.rglob("header.bin")
    header.write_bytes(b"")
    found = audit(f"chroma:///{chroma.data_dir}")
    assert "header.bin" in about(found, Hazard.DAMAGE)
    assert found.findings[0].severity is Severity.CRITICAL


def test_before_the_first_persist_it_is_a_warning(on_disk: OnDisk):
    engine = on_disk("chroma")
    post(engine.url + HOME, {"name": "small"})
    [finding] = [one for one in audit(engine.url).findings if Hazard.POWER in one.hazards]
    assert finding.severity is Severity.WARNING
    assert "small: 0 of 1000" in finding.now


def test_no_chroma_there_is_could_not_look(on_disk: OnDisk):
    engine = on_disk("chroma")
    engine.kill()
    assert audit(engine.url).exit_code == 3
