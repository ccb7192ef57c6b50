"""The directory of a capsule: written once, checked whenever it is read."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FormatTooNew, LimitExceeded, UsageError, VerifyError

VERSION: Final = 1
MANIFEST: Final = "capsule.json"
CAPSULE_BYTES_MAX: Final = 1_000_000
"""A repository carries it for ever, so it is small: choose fewer sessions."""
_XZ: Final = ".xz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule:
    """What was written, by whom, and what must be read back."""

    target: str
    """Whose store: `redis`, or `package.module:target`."""
    form: str
    """How the data are kept: `files` of the engine, `sql`, or `export`."""
    holdfast: str
    """The release that wrote it."""
    engine: Mapping[str, str]
    """Kind, version and configuration of the engine that it was written on."""
    namespace: str = "default"
    about: str = ""
    sessions: list[dict[str, Any]] = field(default_factory=list)
    """What must be read back, session by session."""
    retries: list[dict[str, Any]] = field(default_factory=list)
    """Keys that were used: to use one again must add nothing."""

    @property
    def messages(self) -> int:
        """How many there are in all."""
        return sum(len(session.get("messages", ())) for session in self.sessions)


def write(folder: Path, capsule: Capsule, files: Mapping[str, bytes]) -> None:
    """Make the directory; one that holds anything already is left alone."""
    packed = dict(_packed(name, data) for name, data in files.items())
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(packed.items())}
    value = {"holdfast_capsule": VERSION, **asdict(capsule), "files": sums}
    # ASCII: a lone surrogate has no other way into a file.
    text = json.dumps(value, indent=1) + "\n"
    size = len(text) + sum(map(len, packed.values()))
    if size > CAPSULE_BYTES_MAX:
        raise LimitExceeded(
            f"the capsule would take {size:,} bytes; {CAPSULE_BYTES_MAX:,} is the most. "
            "Nothing was written. Keep fewer sessions: --prefix"
        )
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty: a capsule is never written over")
    for name, data in packed.items():
        place = folder / "data" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(text, "ascii")


def _packed(name: str, data: bytes) -> tuple[str, bytes]:
    """Compressed where that makes it smaller."""
    small = lzma.compress(data, preset=9)
    return (name + _XZ, small) if len(small) < len(data) else (name, data)


def read(folder: Path) -> tuple[Capsule, dict[str, bytes]]:
    """The capsule and its files, unpacked; `VerifyError` where it is not what was written."""
    value = _manifest(folder)
    version = value.get("holdfast_capsule")
    if version != VERSION:
        raise FormatTooNew(
            f"{folder}: capsule version {version!r}; this release reads {VERSION}. Upgrade"
        )
    names = {each.name for each in fields(Capsule)}
    capsule = Capsule(**{name: item for name, item in value.items() if name in names})
    files = {}
    for name, wanted in value["files"].items():
        place = folder / "data" / name
        data = place.read_bytes() if place.exists() else b""
        if hashlib.sha256(data).hexdigest() != wanted:
            raise VerifyError(f"{place} is missing, or not what the capsule was made with")
        packed = name.endswith(_XZ)
        files[name.removesuffix(_XZ)] = lzma.decompress(data) if packed else data
    return capsule, files


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / MANIFEST).read_text("ascii"))
    except OSError as error:
        raise UsageError(f"{folder} is no capsule: {error}") from error
    except ValueError as error:
        raise VerifyError(f"{folder / MANIFEST} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise VerifyError(f"{folder / MANIFEST} is no capsule's")
    return value
