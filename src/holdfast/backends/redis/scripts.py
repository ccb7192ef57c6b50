"""The Lua files as scripts, each with the digest that Redis knows it by."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import limits
from holdfast.commands import ERASED

_FOLDER: Final = Path(__file__).with_name("scripts")
_BOUNDS: Final = re.compile(r"\b(NUMBER|TTL_MS|EXPIRES_MS)_MAX\b")
"""Limits that scripts name; they are put in."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script: a whole command of ours as one atomic step of Redis."""

    name: str
    source: bytes
    digest: bytes


def _load(name: str, *parts: str) -> Script:
    texts = [_FOLDER.joinpath(f"{part}.lua").read_text("utf-8") for part in (*parts, name)]
    source = _BOUNDS.sub(lambda bound: str(getattr(limits, bound[0])), "\n".join(texts)).encode()
    source = source.replace(b"ERASED_RECORD", b"'%b'" % ERASED)
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
    return Script(name, source, digest)


APPEND: Final = _load("append", "head", "add", "keep")
REWRITE: Final = _load("rewrite", "head", "add")
FORGET: Final = _load("forget", "head", "tidy")
ERASE: Final = _load("erase", "head")
READ: Final = _load("read", "head")
STAT: Final = _load("stat", "head")
EXPORT: Final = _load("export", "head")
IMPORT: Final = _load("import", "head")
STAGE: Final = _load("stage")
STATE: Final = _load("state", "head")
UNLIST: Final = _load("unlist", "head")
PART: Final = _load("part")
UNNAME: Final = _load("unname")
TIDIED: Final = _load("tidied", "head", "tidy")
NUMBERS: Final = _load("numbers", "head")
DERIVE: Final = _load("derive", "head", "add")
POSITION: Final = _load("position", "head")
EXTEND: Final = _load("extend", "head", "near")
SEARCH: Final = _load("search", "head", "near")
ALL: Final = (
    *(APPEND, REWRITE, FORGET, ERASE, READ, STAT, EXPORT, IMPORT, STAGE),
    *(NUMBERS, DERIVE, POSITION, EXTEND, SEARCH, STATE, UNLIST, PART, UNNAME, TIDIED),
)
