"""A crash state in one file: the bytes of a directory, and what clients had been told by then.

It may come from anybody: its names lead nowhere else, and what it unpacks to has a bound.
"""

from __future__ import annotations

import base64
import binascii
import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import VerifyError

HISTORY: Final = "history.jsonl"
STATE: Final = "state/"
PACKED_BYTES_MAX: Final = 256 * 1024
"""It goes into a result and beside a test, so it is small: a whole PostgreSQL never is."""
UNPACKED_BYTES_MAX: Final = 16 * 1024 * 1024
_FILES_MAX: Final = 1000
_WHEN: Final = (1980, 1, 1, 0, 0, 0)


def pack(folder: Path, history: Sequence[bytes]) -> str:
    """The files below a directory as text; nothing where they are too large, or no plain files."""
    entries = sorted(folder.rglob("*"))
    files = [entry for entry in entries if entry.is_file()]
    size = sum(file.stat().st_size for file in files) + sum(map(len, history))
    odd = any(entry.is_symlink() or not (entry.is_file() or entry.is_dir()) for entry in entries)
    if odd or len(entries) > _FILES_MAX or size > UNPACKED_BYTES_MAX:
        return ""
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            archive.writestr(zipfile.ZipInfo(HISTORY, _WHEN), b"".join(history))
            for entry in entries:
                name = STATE + entry.relative_to(folder).as_posix()
                if entry.is_dir():
                    archive.writestr(zipfile.ZipInfo(f"{name}/", _WHEN), b"")
                else:
                    made = zipfile.ZipInfo(name, _WHEN)
                    made.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(made, entry.read_bytes())
    except UnicodeEncodeError:  # a name that is no text
        return ""
    data = packed.getvalue()
    return "" if len(data) > PACKED_BYTES_MAX else base64.b64encode(data).decode("ascii")


def from_text(text: object) -> bytes:
    """The file, out of a result; `VerifyError` where it is none."""
    if not isinstance(text, str) or len(text) > 2 * PACKED_BYTES_MAX:
        raise VerifyError("its crash state is no text, or too long")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VerifyError(f"its crash state is not base64: {error}") from error


def unpack(file: Path, folder: Path) -> Path:
    """Put its files into a directory that is there and empty; the one that holds the state.

    `VerifyError` where it is no crash state.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            wrong = next((one.filename for one in infos if not _is_allowed(one.filename)), None)
            if wrong is not None or len(infos) > _FILES_MAX + 1:
                raise VerifyError(f"{file} is no crash state: {wrong or 'too many files'!r}")
            if sum(one.file_size for one in infos) > UNPACKED_BYTES_MAX:
                raise VerifyError(f"{file} unpacks to more than {UNPACKED_BYTES_MAX:,} bytes")
            (folder / STATE).mkdir(mode=0o711)
            for one in infos:
                place = folder / one.filename
                if one.is_dir():
                    place.mkdir(mode=0o711, exist_ok=True)
                else:
                    place.write_bytes(archive.read(one))  # no more than it says, and checks a sum
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
    ) as error:
        raise VerifyError(f"{file} is no crash state: {error}") from error
    if not (folder / HISTORY).is_file():
        raise VerifyError(f"{file} is no crash state: it has no {HISTORY}")
    return folder / STATE


def _is_allowed(name: str) -> bool:
    """Below the state, on this machine and on any other."""
    if name == HISTORY:
        return True
    parts = name.removesuffix("/").split("/")
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return plain and name.startswith(STATE) and "\\" not in name
