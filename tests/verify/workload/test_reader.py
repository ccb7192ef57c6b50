"""A warm process reads one store after another; what it cannot tell is unknown, never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import Message
from holdfast.verify.spec import EngineView, TargetSpec
from holdfast.verify.workload.reader import Reader

STORES = "tests.verify.check.stores"


def spec(folder: Path, name: str = "sqlite") -> TargetSpec:
    url = f"sqlite:///{folder}/memory.db"
    return TargetSpec(name, engine=EngineView("sqlite", "local", "default", url, "3", folder))


def test_it_reads_wherever_it_is_told_and_says_why_it_cannot(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        url = f"sqlite:///{tmp_path / name}/memory.db"
        with holdfast.connect(url, require=holdfast.Durability.MEMORY) as store:
            store.append("s", Message("user", name, id=name))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "memory.db").write_bytes(b"no database" * 1000)
    with Reader(tmp_path / "log", timeout_s=20) as reader:
        for name in ("one", "two"):
            answer = reader.read(spec(tmp_path / name), ["s", "t"])
            assert [read["messages"] for read in answer.reads] == [[name], []]
        assert "open() raised" in reader.read(spec(tmp_path / "bad"), ["s"]).not_opened
        answer = reader.read(spec(tmp_path, "no.such:target"), ["s"])
        assert "cannot be imported" in answer.unknown
        assert not answer.not_opened
        assert reader.read(spec(tmp_path / "one"), ["s"]).reads[0]["messages"] == ["one"]


def test_a_store_that_hangs_or_dies_is_given_up_and_the_next_is_read(tmp_path: Path):
    with Reader(tmp_path / "log", timeout_s=20) as reader:
        reader.read(spec(tmp_path), [])
        reader._timeout_s = 0.2
        assert "no answer" in reader.read(spec(tmp_path, f"{STORES}:hangs_at_open"), ["s"]).unknown
        reader._timeout_s = 20
        assert reader.read(spec(tmp_path), ["s"]).reads[0]["messages"] == []
        assert reader._process is not None
        reader._process.kill()
        assert "died" in reader.read(spec(tmp_path), ["s"]).unknown
        assert reader.read(spec(tmp_path), ["s"]).reads[0]["messages"] == []


def test_how_long_python_takes_to_start_is_not_held_against_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text("import time; time.sleep(3)")
    monkeypatch.syspath_prepend(str(slow))
    with Reader(tmp_path / "log", timeout_s=2.5) as reader:
        assert not reader.read(spec(tmp_path, "no.such:target"), []).unknown.startswith("the store")
