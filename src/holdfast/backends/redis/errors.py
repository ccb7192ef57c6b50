"""What the driver and the engine complain of, as our errors: not done, or unknown."""

from __future__ import annotations

import re
from typing import Final

import redis

from holdfast.errors import (
    Damaged,
    EngineFull,
    EngineUnreachable,
    HoldfastError,
    OutcomeUnknown,
    Refused,
)

BACKEND: Final = "redis"


class Lost(Exception):
    """The request may have reached the engine, and no reply came back."""


_CODES: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "OOM": (
        EngineFull,
        "the engine is at its memory limit; nothing was written. Raise maxmemory, or free some room",
    ),
    "MISCONF": (
        Refused,
        (
            "the engine cannot write to its disk and refuses writes; nothing was written. "
            "Free some room, or mend the disk"
        ),
    ),
    "READONLY": (
        EngineUnreachable,
        (
            "this engine is a replica now and takes no writes; nothing was written. "
            "Connect to the primary, or through Sentinel"
        ),
    ),
    "LOADING": (
        EngineUnreachable,
        "the engine is still loading its data; nothing was written. Try again",
    ),
    "BUSY": (
        EngineUnreachable,
        "another script keeps the engine busy; nothing was written. Try again",
    ),
    "MASTERDOWN": (
        EngineUnreachable,
        "this replica has lost its primary; nothing was written. Try again",
    ),
    "CLUSTERDOWN": (
        EngineUnreachable,
        "the cluster does not serve this session now; nothing was written. Try again",
    ),
    "TRYAGAIN": (
        EngineUnreachable,
        "the cluster is moving this session; nothing was written. Try again",
    ),
    "NOREPLICAS": (
        Refused,
        "the engine has fewer replicas than its min-replicas-to-write; nothing was written",
    ),
    "NOAUTH": (Refused, "the engine wants a password; nothing was written. Put it into the URL"),
    "WRONGPASS": (Refused, "the engine refused user name or password; nothing was written"),
    "NOPERM": (
        Refused,
        (
            "this user may not do that on the engine; nothing was written. It needs EVALSHA, EVAL and "
            "the commands of the scripts on keys that begin with hf:"
        ),
    ),
    "DENIED": (Refused, "the engine is in protected mode; nothing was written. Give it a password"),
    "WRONGTYPE": (
        Damaged,
        (
            "a key of ours holds something of another kind: another program wrote it. "
            "Nothing was changed"
        ),
    ),
}
_CODE: Final = re.compile(rf"(?:^|[\s:]-?)({'|'.join([*_CODES, 'NOSCRIPT', 'MOVED', 'ASK'])})\b")
_KINDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    # The driver knows these codes, and cuts them off the text.
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.AuthenticationError, "WRONGPASS"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
)
_WORDS: Final = (
    ("max number of clients", "the engine has as many clients as it takes"),
    ("invalid password", "the engine refused user name or password"),
    ("without any password configured", "the engine has no password, and the URL has one"),
)


def mapped(error: BaseException, operation: str, *, writes: bool) -> HoldfastError:
    """Our error for what came in the place of a reply; unknown to us is unknown to the caller."""
    kind, words = _kind_and_words(error, writes=writes)
    mapped_error = kind(f"{words} ({error})", operation=operation, backend=BACKEND)
    mapped_error.__cause__ = error
    return mapped_error


def _kind_and_words(error: BaseException, *, writes: bool) -> tuple[type[HoldfastError], str]:
    found = _said(error)
    if found is not None:
        return found
    if not writes and not isinstance(error, Lost):
        return EngineUnreachable, "the engine answered with an error; nothing was written"
    if not writes:
        return EngineUnreachable, "the engine gave no answer; nothing was written"
    if isinstance(error, Lost):
        return OutcomeUnknown, (
            "the connection was lost, or timed out, before the reply. The write may or may not "
            "have happened: retry it with the same key"
        )
    return OutcomeUnknown, (
        "the engine answered with an error that is not known to say what happened. The write may "
        "or may not have happened: retry it with the same key"
    )


def code_of(error: BaseException) -> str:
    """The engine's own code for what it refused, such as OOM; empty if it said none we know."""
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    if not isinstance(error, redis.exceptions.ResponseError):
        return ""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def _said(error: BaseException) -> tuple[type[HoldfastError], str] | None:
    code = code_of(error)
    if code == "MISCONF" and "No space left" in str(error):
        return EngineFull, "the engine's disk is full; nothing was written. Free some room"
    return _CODES.get(code)


def unreachable(error: BaseException, server: str) -> HoldfastError:
    """Our error when no connection came about: nothing was sent, so nothing was written."""
    said = _said(error)
    if said is None:
        reasons = [words for text, words in _WORDS if text in str(error)]
        reason = reasons[0] if reasons else "no connection"
        said = EngineUnreachable, f"{reason} at {server}; nothing was written"
    mapped_error = said[0](f"{said[1]} ({error})", operation="connect", backend=BACKEND)
    mapped_error.__cause__ = error
    return mapped_error
