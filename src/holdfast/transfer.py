"""Sessions as JSON Lines, exactly, and back. Pure.

    {"holdfast_export":1}
    {"session":"user-42","state":"live","last":2,"ttl_s":null,"expires_at_ms":null,"keys":[…],"messages":2}
    {"seq":1,"record":{"v":1,"crc":"…","msg":{…}}}
    {"seq":2,"record":{"v":1,"crc":"…","msg":{…}}}
    {"end":true,"sessions":1}

Every line is valid UTF-8. What JSON text cannot carry exactly (lone surrogates, damaged
bytes, records that another program laid out differently) stands as base64 in a field whose
name ends in `_b64`.
"""

from __future__ import annotations

import base64
import contextlib
import copy as copying
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast import limits
from holdfast import transfer_checks as checks
from holdfast.codec import is_too_deep, json_bytes, json_value
from holdfast.commands import MEMORIES, SUMMARIES, Copy
from holdfast.errors import (
    Damaged,
    EngineUnreachable,
    FormatTooNew,
    HoldfastError,
    StoredDataError,
    UsageError,
)
from holdfast.model import Loaded, SessionState
from holdfast.tombstones import DIGEST
from holdfast.transfer_checks import Begun

VERSION: Final = 1
WORDS_CHARS_MAX: Final = 300
"""Of what is wrong with a line, which may repeat some of it."""
NAMED_MAX: Final = 20
"""Sessions that an error names one by one."""


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """A whole log with its name, between two engines."""

    name: bytes
    copy: Copy


class Writer:
    """Turns sessions into lines, without the newline at their ends."""

    def __init__(self) -> None:
        self._sessions = 0
        self._left_out: list[tuple[bytes, HoldfastError]] = []

    def header(self) -> str:
        """The first line."""
        return _line({"holdfast_export": VERSION})

    def session(self, name: bytes, copy: Copy) -> Iterator[str]:
        """One line for the session, then one for each record.

        The memories and summaries beside it are logs too, with names that are no UTF-8.
        Nothing for one that has vanished between the listing and now.
        """
        facts = copy.facts
        if facts.state is SessionState.NEVER:
            return
        self._sessions += 1
        yield _line(
            _text_field("session", name)
            | {
                "state": facts.state.value,
                "last": facts.last,
                "ttl_s": None if facts.ttl_ms is None else facts.ttl_ms / 1000,
                "expires_at_ms": facts.expires_ms,
                "keys": [[digest.hex(), first, last] for digest, first, last in copy.keys],
                "messages": len(copy.rows),
            }
            | ({"trimmed": facts.trimmed} if facts.trimmed else {})
        )
        for seq, record in copy.rows:
            yield _line({"seq": seq} | _record_field(record))

    def trailer(self) -> str:
        """The last line: without it a file has been cut short."""
        return _line({"end": True, "sessions": self._sessions})

    def leave_out(self, name: bytes, error: HoldfastError, backend: object) -> None:
        """Go on without a session that cannot be read; `finish` names it.

        One that cannot be reached is left out where the others are on other nodes.
        """
        if isinstance(error, EngineUnreachable) and not getattr(backend, "is_sharded", False):
            raise error
        self._left_out.append((name, error))

    def finish(self) -> None:
        """After the last line: raise `Damaged` if a session is missing from the export.

        `EngineUnreachable` where none of those is damaged: they may be there the next time.
        """
        if not self._left_out:
            return
        damaged = any(isinstance(error, StoredDataError) for _, error in self._left_out)
        kind = Damaged if damaged else EngineUnreachable
        named = [f"{_shown(name)} ({error})" for name, error in self._left_out[:NAMED_MAX]]
        more = len(self._left_out) - len(named)
        raise kind(
            f"{len(self._left_out)} session(s) could not be read and are not in the export, which is "
            f"complete otherwise: {'; '.join(named)}{f'; and {more} more' if more else ''}",
            operation="export",
        ) from self._left_out[0][1]


class Reader:
    """Turns lines back into sessions; says with the line's number what is wrong with one.

    By any author of the file: what it returns is a session that some store could have held.
    """

    def __init__(self) -> None:
        self._number = 0
        self._begun: Begun | None = None
        self._rows: list[tuple[int, bytes]] = []
        self._ended = False
        self._written = self._messages = self._present = 0
        self._beside = self._memories = 0
        self._moving: bytes | None = None
        self._last = ""

    def feed(self, line: str) -> SessionCopy | None:
        """Take one line; returns a session when it completes one."""
        self._number += 1
        try:
            if not line.strip():
                return None
            moved = self._take(checks.parsed(line))
        except (UsageError, *checks.NONSENSE) as error:
            why = str(error) if isinstance(error, UsageError) else repr(error)
            kind = type(error) if isinstance(error, UsageError) else UsageError
            raise kind(
                f"line {self._number} cannot be loaded: {why[:WORDS_CHARS_MAX]}. {self._so_far()}"
            ) from error
        self._moving = None if moved is None else moved.name
        return moved

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Around a whole load: errors of the engine and of the file say what is loaded, too."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise UsageError(
                f"the file is not UTF-8 after line {self._number} ({error}). {self._so_far()}"
            ) from error
        except HoldfastError as error:
            if self._moving is None:
                raise
            own = copying.copy(error)  # others may be given the same one
            words = f"session {_shown(self._moving)}: {error}. {self._so_far()}"
            own.args = (words, *error.args[1:])
            raise own from error.__cause__

    def count(self, moved: SessionCopy, *, written: bool) -> None:
        """Note what became of a session."""
        self._moving, self._last = None, _shown(moved.name)
        if written and moved.name.startswith((MEMORIES, SUMMARIES)):
            self._beside += 1
            self._memories += len(moved.copy.rows)
        elif written:
            self._written += 1
            self._messages += len(moved.copy.rows)
        else:
            self._present += 1

    def finish(self) -> Loaded:
        """What was loaded; `Damaged` if the file ended early."""
        if not self._ended:
            raise Damaged(f"the export was cut short after line {self._number}. {self._so_far()}")
        return Loaded(self._written, self._messages, self._present, self._memories)

    def _whole(self) -> int:
        return self._written + self._beside + self._present

    def _so_far(self) -> str:
        upto = f", up to {self._last}," if self._last else ""
        return f"{self._whole()} whole session(s) before it{upto} are loaded, nothing of the rest"

    def _take(self, line: dict[str, Any]) -> SessionCopy | None:
        if self._number == 1:
            self._check_header(line)
            return None
        if self._ended:
            raise UsageError("it comes after the end of the export")
        if "end" in line:
            self._check_end(line)
            return None
        if "seq" in line:
            if self._begun is None:
                raise UsageError("it is a record of no session")
            self._rows.append(self._begun.row(len(self._rows), line["seq"], _record_bytes(line)))
        elif self._begun is None:
            self._begun = checks.begun(_text_bytes(line, "session"), line)
        else:
            raise UsageError("it begins a session before the last one is complete")
        return self._complete(self._begun)

    def _complete(self, begun: Begun) -> SessionCopy | None:
        if len(self._rows) < begun.facts.count:
            return None
        begun.facts.bytes = sum(len(record) for _, record in self._rows)
        moved = SessionCopy(begun.name, Copy(begun.facts, self._rows, begun.keys))
        self._begun, self._rows = None, []
        return moved

    def _check_header(self, line: dict[str, Any]) -> None:
        version = checks.whole(line["holdfast_export"], "the version", VERSION, None)
        if version != VERSION:
            raise FormatTooNew(
                f"line 1: this is export version {version}; this release reads {VERSION}. "
                f"{self._so_far()}. Upgrade"
            )

    def _check_end(self, line: dict[str, Any]) -> None:
        said = checks.whole(line["sessions"], "sessions", 0, None)
        if line["end"] is not True:
            raise UsageError("it is neither an end nor anything else")
        if self._begun is not None or said != self._whole():
            raise Damaged(
                f"line {self._number} ends an export of {said} session(s), but "
                f"lines are missing. {self._so_far()}"
            )
        self._ended = True


def _shown(name: bytes) -> str:
    """The session of a log in words."""
    sublog = next((sublog for sublog in (MEMORIES, SUMMARIES) if name.startswith(sublog)), b"")
    beside = {MEMORIES: "memories of ", SUMMARIES: "summaries of "}.get(sublog, "")
    plain = name[len(sublog) :]
    if plain.startswith(DIGEST):
        return f"{beside}one forgotten, with the digest {plain[len(DIGEST) :].decode()}"
    return beside + repr(plain.decode("utf-8", "backslashreplace"))


def _line(value: dict[str, Any]) -> str:
    return json_bytes(value).decode("utf-8")


def _text_field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}


def _text_bytes(line: dict[str, Any], name: str) -> bytes:
    if name not in line:
        return base64.b64decode(line[f"{name}_b64"], validate=True)
    if not isinstance(line[name], str):
        raise UsageError(f"{name} must be text")
    return str(line[name]).encode("utf-8")


def _record_field(record: bytes) -> dict[str, Any]:
    """The record as JSON where that gives back the same bytes, otherwise as base64."""
    try:
        value = json_value(record)
        record.decode("utf-8")
        deep = is_too_deep({"record": value}, record, limits.EXPORT_DEPTH_MAX)
        if json_bytes(value) == record and not deep:
            return {"record": value}
    except (ValueError, RecursionError):
        pass
    return {"record_b64": base64.b64encode(record).decode("ascii")}


def _record_bytes(line: dict[str, Any]) -> bytes:
    if "record" in line:
        return json_bytes(line["record"])
    return base64.b64decode(line["record_b64"], validate=True)
