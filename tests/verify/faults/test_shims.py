"""A preload library that other users cannot read is copied once, and never under running processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.verify import shims
from holdfast.verify.instrument import Launch


def test_a_copy_is_made_once_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    private, folder = tmp_path / "private", tmp_path / "folder"
    private.mkdir(mode=0o700)
    folder.mkdir()
    hidden = private / shims.library("disk").name
    hidden.write_bytes(shims.library("disk").read_bytes())
    hidden.chmod(0o600)
    monkeypatch.setattr(shims, "library", lambda _: hidden)
    launch = Launch(("true",), {})
    first = shims.preload(launch, "disk", folder).environment[shims.PRELOAD]
    before = Path(first).stat()
    assert shims.preload(launch, "disk", folder).environment[shims.PRELOAD] == first
    after = Path(first).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert after.st_mode & 0o777 == 0o644
    assert Path(first).read_bytes() == hidden.read_bytes()
    assert [one.name for one in folder.iterdir()] == [hidden.name]
