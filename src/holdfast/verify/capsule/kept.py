"""The directory of a capsule: written once, checked whenever it is read.

A capsule is data, by any author: nothing in it names a path outside it or code to be run, and
what it unpacks to has a bound.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FormatTooNew, LimitExceeded, UsageError, VerifyError

VERSION: Final = 1
MANIFEST: Final = "capsule.json"
CAPSULE_BYTES_MAX: Final = 1_000_000
"""A repository carries it for ever, so it is small: choose fewer sessions."""
UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all files of a capsule together."""
_UNPACKING_BYTES_MAX: Final = 128 * 1024 * 1024
"""What the decompressor itself may take; it needs half of that for what `write` made."""
_XZ: Final = ".xz"
_NAME: Final = re.compile(r"(\w[\w.-]*/)*\w[\w.-]*(?<!-journal)", re.ASCII)
"""Of a file. SQLite deletes a file of any path that a rollback journal names, so none is taken."""
_KINDS: Final = {"files": ("sqlite", "redis", "valkey"), "sql": ("postgres",)}
_ONE_FILE: Final = {"sql": "dump.sql", "export": "export.jsonl"}
_TYPES: Final = {
    "target": str,
    "form": str,
    "holdfast": str,
    "engine": dict,
    "namespace": str,
    "about": str,
    "sessions": list,
    "retries": list,
    "files": dict,
}


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
    for wrong in _wrong_with(value):
        raise VerifyError(f"{folder / MANIFEST} is no capsule's: {wrong}")
    names = {each.name for each in fields(Capsule)}
    capsule = Capsule(**{name: item for name, item in value.items() if name in names})
    files: dict[str, bytes] = {}
    for name, wanted in value["files"].items():
        data = _bytes_of(folder, name)
        if hashlib.sha256(data).hexdigest() != wanted:
            raise VerifyError(
                f"{folder / 'data' / name} is missing, or not what the capsule was made with"
            )
        room = UNPACKED_BYTES_MAX - sum(map(len, files.values()))
        files[name.removesuffix(_XZ)] = _unpacked(name, data, room)
    if (needed := _ONE_FILE.get(capsule.form)) and needed not in files:
        raise VerifyError(f"{folder} has no {needed}")
    return capsule, files


def _manifest(folder: Path) -> dict[str, Any]:
    place = folder / MANIFEST
    try:
        value = json.loads(_regular(place).decode("ascii"))
    except OSError as error:
        raise UsageError(f"{folder} is no capsule: {error}") from error
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{place} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise VerifyError(f"{place} is no capsule's")
    return value


def _wrong_with(value: Mapping[str, Any]) -> Iterator[str]:
    """What no release wrote, in words; only the first can be relied on."""
    for name, kind in _TYPES.items():
        if not isinstance(value.get(name), kind):
            yield f"{name} must be a {kind.__name__}"
    form, engine = value["form"], value["engine"]
    if form not in _KINDS and form != "export":
        yield f"no form {form!r}"
    if not all(isinstance(word, str) for word in engine.values()):
        yield "engine has words only"
    if form in _KINDS and engine.get("kind") not in _KINDS[form]:
        yield f"{form} of {engine.get('kind')!r}"
    if not all(_NAME.fullmatch(name) for name in value["files"]):
        yield "the name of a file is a plain path inside it"
    if not all(_is_session(one) for one in value["sessions"]):
        yield "a session has a name and messages"
    if not all(_is_session(one) for one in value["retries"]):
        yield "a retry has the name of a session"


def _is_session(one: object) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("session"), str):
        return False
    messages, damaged = one.get("messages", []), one.get("damaged", [])
    return (
        isinstance(messages, list)
        and isinstance(damaged, list)
        and all(isinstance(message, dict) for message in messages)
    )


def _bytes_of(folder: Path, name: str) -> bytes:
    """Of a file inside a capsule: no link leads out of it. Nothing where there is none."""
    place = folder / "data" / name
    if place.resolve() != folder.resolve() / "data" / name:
        raise VerifyError(f"{place} is a link; a capsule has none")
    try:
        return _regular(place)
    except OSError:
        return b""


def _regular(place: Path) -> bytes:
    """All of a file within the bound; a pipe or a device holds nobody up."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise VerifyError(f"{place} is no file")
        data = file.read(CAPSULE_BYTES_MAX + 1)
    if len(data) > CAPSULE_BYTES_MAX:
        raise VerifyError(f"{place} is longer than {CAPSULE_BYTES_MAX:,} bytes")
    return data


def _unpacked(name: str, data: bytes, room: int) -> bytes:
    if not name.endswith(_XZ):
        return data
    unpacker = lzma.LZMADecompressor(memlimit=_UNPACKING_BYTES_MAX)
    try:
        plain = unpacker.decompress(data, max_length=room + 1)
    except lzma.LZMAError as error:
        raise VerifyError(f"{name} cannot be unpacked: {error}") from error
    if len(plain) > room:
        raise VerifyError(f"the capsule unpacks to more than {UNPACKED_BYTES_MAX:,} bytes")
    if not unpacker.eof:
        raise VerifyError(f"{name} was cut short")
    return plain
