"""What the commands write to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import terminal


def test_a_file_that_was_written_lasts_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[tuple[str, list[str]]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        what = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((what.name, sorted(file.name for file in tmp_path.iterdir())))

    monkeypatch.setattr(os, "fsync", watched)
    terminal.write_file(iter(["a", "b"]), tmp_path / "export.jsonl")
    assert (tmp_path / "export.jsonl").read_text() == "a\nb\n"
    assert synced == [
        ("export.jsonl.part", ["export.jsonl.part"]),
        (tmp_path.name, ["export.jsonl"]),
    ]
