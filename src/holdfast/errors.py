"""Every error of Holdfast, as a tree. A write ends done, not done, or unknown.

HoldfastError                 picklable; .operation .backend; the cause kept
├── UsageError (ValueError)   the caller's mistake; nothing was sent
│   ├── InvalidMessage        a message that could not come back exactly as it went in
│   ├── LimitExceeded         larger than a bound of `limits`
│   └── StoreClosed           the store was closed, or belongs to another process
├── NotApplied                definite: the write did not happen
│   ├── Conflict              the session does not end where `expect` says
│   ├── EngineUnreachable     the engine is down, busy or gone
│   ├── EngineFull            no room left for the write
│   └── Refused               this setup cannot keep what was required
├── OutcomeUnknown            the write may or may not have happened: retry with the same key
├── StoredDataError           what is stored cannot be read
│   ├── Damaged
│   └── FormatTooNew
└── VerifyError               the kit failed; says nothing about the store under test
    ├── EngineMissing         no such engine here: what was looked for, how to get it
    ├── EngineFailed          the engine did not start or died: its own last words
    ├── FaultNotProven        a fault was ordered and no proof of it was seen
    └── NotAHistory           a file that cannot be judged: the line, and what is wrong with it

StorageWarning (UserWarning)  storage that may be taken away later
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class HoldfastError(Exception):
    """The root. `operation` and `backend` say where it arose, where that is known."""

    def __init__(
        self, message: str, *, operation: str | None = None, backend: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.backend = backend

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross a process boundary whole: type, words, attributes and cause."""
        return _revive, (type(self), self.args, dict(self.__dict__), _portable(self.__cause__))

    def __copy__(self) -> HoldfastError:
        """The same for another caller to raise: a traceback and a context belong to one."""
        return _revive(type(self), self.args, dict(self.__dict__), self.__cause__)


class UsageError(HoldfastError, ValueError):
    """The caller's mistake. Nothing was sent and nothing was written."""


class InvalidMessage(UsageError):
    """A message that could not come back exactly as it went in. Nothing was written."""


class LimitExceeded(UsageError):
    """A value larger than its bound in `holdfast.limits`. Nothing was written."""


class StoreClosed(UsageError):
    """The store was closed, or was opened by another process. Nothing was written."""


class NotApplied(HoldfastError):
    """Definite: the write did not happen."""


class Conflict(NotApplied):
    """The session does not end at the number that was expected. Nothing was written."""


class EngineUnreachable(NotApplied):
    """The engine is down, busy or gone. Nothing was written."""


class EngineFull(NotApplied):
    """The engine has no room for the write. Nothing was written."""


class Refused(NotApplied):
    """This setup cannot keep what was required. Nothing was written."""


class OutcomeUnknown(HoldfastError):
    """The write may or may not have happened. Retry it with the same key to be sure."""


class StoredDataError(HoldfastError):
    """What is stored cannot be read. Nothing was changed."""


class Damaged(StoredDataError):
    """Stored bytes are not what was written."""


class FormatTooNew(StoredDataError):
    """Written by a later release than this one: upgrade, then read again."""


class StorageWarning(UserWarning):
    """The setup keeps what is required of it now, on storage that may be taken away later."""


class VerifyError(HoldfastError):
    """The kit itself failed; this says nothing about the store under test."""


class EngineMissing(VerifyError):
    """An engine that is not on this machine: what was looked for, and how to get it."""


class EngineFailed(VerifyError):
    """An engine that did not start, or died: with the last lines of its own log."""


class FaultNotProven(VerifyError):
    """A fault was ordered, and no proof was seen that it landed."""


class NotAHistory(VerifyError):
    """A file that cannot be judged: the sentence names the line and what is wrong with it."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}", operation="judge")
        self.line = line


def _portable(cause: BaseException | None) -> BaseException | None:
    """The cause itself where it can be pickled, otherwise its words."""
    if cause is None:
        return None
    import pickle  # noqa: PLC0415 - needed only when an error is pickled

    try:
        pickle.loads(pickle.dumps(cause))  # noqa: S301 - our own bytes, made on this line
    except Exception:  # noqa: BLE001 - a foreign class may fail in any way
        return RuntimeError(f"{type(cause).__name__}: {cause}")
    return cause


def _revive(
    kind: type[HoldfastError],
    args: tuple[Any, ...],
    state: dict[str, Any],
    cause: BaseException | None,
) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    error.__cause__ = cause
    return error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A clause for an error about a word that is none of the known ones; empty if none is close."""
    import difflib  # noqa: PLC0415 - only a mistyped word needs it

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
