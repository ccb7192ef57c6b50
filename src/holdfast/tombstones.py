"""What a tombstone is called that must not say whose it is. Pure.

`forget(now=True)` leaves a digest in the place of the session's id. A session is looked
for by its name first, then by this one. No UTF-8 holds the byte 255, so no session has such a name.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from holdfast.commands import MEMORIES, SUBLOGS, SUMMARIES

DIGEST: Final = b"\xffd"
"""What stands before the digest, in the place of the session's id."""
DIGESTS: Final = tuple(sublog + DIGEST for sublog in SUBLOGS)
_NAME: Final = re.compile(rb"(?:\xff[ms])?\xffd[0-9a-f]{64}")


def digest_name(name: bytes) -> bytes:
    """The name of a log's tombstone: the same on every engine, in every namespace and in exports."""
    sublog = name[: len(MEMORIES)] if name.startswith((MEMORIES, SUMMARIES)) else b""
    session = name[len(sublog) :]
    return sublog + DIGEST + hashlib.sha256(session).hexdigest().encode()


def is_digest(name: bytes) -> bool:
    """Whether it is one that `digest_name` gives."""
    return _NAME.fullmatch(name) is not None
