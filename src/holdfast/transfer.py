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
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.codec import json_bytes, json_value
from holdfast.commands import MEMORIES, SUMMARIES, Copy, Facts
from holdfast.errors import Damaged, FormatTooNew, StoredDataError, UsageError
from holdfast.model import Loaded, SessionState

VERSION: Final = 1
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
        self._left_out: list[tuple[bytes, StoredDataError]] = []

    def header(self) -> str:
        """The first line."""
        return _line({"holdfast_export": VERSION})

    def session(self, name: bytes, copy: Copy) -> Iterator[str]:
        """One line for the session, then one for each record.

        The memories and summaries beside it are logs too, with names that are no UTF-8.
        """
        self._sessions += 1
        facts = copy.facts
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
        )
        for seq, record in copy.rows:
            yield _line({"seq": seq} | _record_field(record))

    def trailer(self) -> str:
        """The last line: without it a file has been cut short."""
        return _line({"end": True, "sessions": self._sessions})

    def leave_out(self, name: bytes, error: StoredDataError) -> None:
        """Go on without a session that cannot be read; `finish` names it."""
        self._left_out.append((name, error))

    def finish(self) -> None:
        """After the last line: raise `Damaged` if a session is missing from the export."""
        if not self._left_out:
            return
        named = [f"{_shown(name)} ({error})" for name, error in self._left_out[:NAMED_MAX]]
        more = len(self._left_out) - len(named)
        raise Damaged(
            f"{len(self._left_out)} session(s) could not be read and are not in the export, which is "
            f"complete otherwise: {'; '.join(named)}{f'; and {more} more' if more else ''}",
            operation="export",
        ) from self._left_out[0][1]


class Reader:
    """Turns lines back into sessions; says with the line's number what is wrong with one."""

    def __init__(self) -> None:
        self._number = 0
        self._begun: dict[str, Any] | None = None
        self._rows: list[tuple[int, bytes]] = []
        self._ended = False
        self._written = self._messages = self._present = 0
        self._beside = self._memories = 0

    def feed(self, line: str) -> SessionCopy | None:
        """Take one line; returns a session when it completes one."""
        self._number += 1
        if not line.strip():
            return None
        try:
            return self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(
                f"line {self._number} is not a line of a holdfast export "
                f"({type(error).__name__}: {error}). {self._so_far()}"
            ) from error

    def count(self, moved: SessionCopy, *, written: bool) -> None:
        """Note what became of a session."""
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
        whole = self._whole()
        return f"{whole} whole session(s) before it are loaded, nothing of the rest"

    def _take(self, line: dict[str, Any]) -> SessionCopy | None:
        if self._number == 1:
            self._check_header(line)
            return None
        if "end" in line:
            self._check_end(line)
            return None
        if "seq" in line:
            self._rows.append((int(line["seq"]), _record_bytes(line)))
        elif self._begun is None:
            self._begun = line
        else:
            raise UsageError(
                f"line {self._number} begins a session before the last one is complete. "
                f"{self._so_far()}"
            )
        return self._complete()

    def _complete(self) -> SessionCopy | None:
        if self._begun is None:
            raise UsageError(f"line {self._number} is a record of no session. {self._so_far()}")
        if len(self._rows) < int(self._begun["messages"]):
            return None
        moved = _session_copy(self._begun, self._rows)
        self._begun, self._rows = None, []
        return moved

    def _check_header(self, line: dict[str, Any]) -> None:
        version = line["holdfast_export"]
        if version != VERSION:
            raise FormatTooNew(
                f"this is export version {version!r}; this release reads {VERSION}. "
                "Nothing was loaded. Upgrade"
            )

    def _check_end(self, line: dict[str, Any]) -> None:
        whole = self._whole()
        if self._begun is not None or line["sessions"] != whole:
            raise Damaged(
                f"line {self._number} ends an export of {line['sessions']} session(s), but "
                f"lines are missing. {self._so_far()}"
            )
        self._ended = True


def _session_copy(begun: dict[str, Any], rows: list[tuple[int, bytes]]) -> SessionCopy:
    facts = Facts(
        SessionState(begun["state"]),
        int(begun["last"]),
        len(rows),
        sum(len(record) for _, record in rows),
        None if begun["ttl_s"] is None else round(begun["ttl_s"] * 1000),
        begun["expires_at_ms"],
    )
    keys = [(bytes.fromhex(digest), int(first), int(last)) for digest, first, last in begun["keys"]]
    return SessionCopy(_text_bytes(begun, "session"), Copy(facts, rows, keys))


def _line(value: dict[str, Any]) -> str:
    return json_bytes(value).decode("utf-8")


def _shown(name: bytes) -> str:
    for lane, what in ((MEMORIES, "memories of "), (SUMMARIES, "summaries of ")):
        if name.startswith(lane):
            return what + _shown(name[len(lane) :])
    return repr(name.decode("utf-8", "surrogatepass"))


def _text_field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode("ascii")}


def _text_bytes(line: dict[str, Any], name: str) -> bytes:
    if name in line:
        return str(line[name]).encode("utf-8")
    return base64.b64decode(line[f"{name}_b64"], validate=True)


def _record_field(record: bytes) -> dict[str, Any]:
    """The record as JSON where that gives back the same bytes, otherwise as base64."""
    try:
        value = json_value(record)
        record.decode("utf-8")
        if json_bytes(value) == record:
            return {"record": value}
    except (ValueError, RecursionError):
        pass
    return {"record_b64": base64.b64encode(record).decode("ascii")}


def _record_bytes(line: dict[str, Any]) -> bytes:
    if "record" in line:
        return json_bytes(line["record"])
    return base64.b64decode(line["record_b64"], validate=True)
