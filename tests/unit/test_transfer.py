"""The border of a load, without an engine: each wrong line by its own name, and every real one passes."""

from __future__ import annotations

import json
import zlib

import pytest

from holdfast import codec, limits
from holdfast.commands import Copy, Facts
from holdfast.errors import Damaged, FormatTooNew, LimitExceeded, UsageError
from holdfast.model import SessionState
from holdfast.transfer import Reader, SessionCopy, Writer
from tests.exports import export, head, session, wrong_files


def read(lines: list[str]) -> list[SessionCopy]:
    reader, found = Reader(), []
    for line in lines:
        if (copy := reader.feed(line)) is not None:
            reader.count(copy, written=True)
            found.append(copy)
    reader.finish()
    return found


@pytest.mark.parametrize("what", wrong_files())
def test_what_no_export_can_hold_is_refused_by_line(what: str):
    with pytest.raises((UsageError, Damaged, FormatTooNew), match=r"line \d+.*loaded") as caught:
        read(wrong_files()[what])
    assert len(str(caught.value)) < 700


def written(*copies: SessionCopy) -> list[str]:
    writer = Writer()
    lines = [line for copy in copies for line in writer.session(copy.name, copy.copy)]
    return [writer.header(), *lines, writer.trailer()]


@pytest.mark.parametrize("depth", [0, 100, 101, 104, 105, 106, 300, 100_000])
def test_a_record_of_any_depth_moves_exactly(depth: int):
    record = b'{"a":' + b"[" * depth + b"]" * depth + b"}" if depth else b"{}"
    facts = Facts(SessionState.LIVE, 1, 1, len(record))
    copy = SessionCopy(b"s", Copy(facts, [(1, record)], []))
    assert read(written(copy)) == [copy]


def test_a_session_that_vanished_while_it_was_exported_is_left_out():
    gone = SessionCopy(b"s", Copy(Facts(SessionState.NEVER), (), ()))
    lines = written(gone)
    assert len(lines) == 2
    assert read(lines) == []


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "RECORD_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="line 3 "):
        read(export(session("s", ["x" * 100])))
    monkeypatch.setattr(limits, "EXPORT_LINE_CHARS_MAX", 200)
    with pytest.raises(LimitExceeded, match="line 2 "):
        read(export([head("s" * 200, 0)]))


@pytest.mark.parametrize(
    "change",
    [{"role": 5}, {"id": None}, {"content": {}}, {"content": 1.5}, {"extra": "x"}, {"extra": [1]},
     {"at": "2025-01-01T00:00:00"}, {"at": 5}],
)  # fmt: skip
def test_a_forged_record_with_a_right_checksum_reads_as_damaged(change: dict[str, object]):
    message = {"id": "1", "role": "user", "content": "x", "at": None, **change}
    body = json.dumps(message, separators=(",", ":")).encode()
    record = b'{"v":1,"crc":"%08x","msg":%b}' % (zlib.crc32(body), body)
    with pytest.raises(Damaged):
        codec.decode(record)
