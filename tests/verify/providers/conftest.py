"""A machine on which no Docker daemon answers."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This test finds no daemon."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
