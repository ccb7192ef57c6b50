"""Whatever a file holds, `judge` gives a verdict or names the line that is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import NotAHistory
from holdfast.verify import _lines, history
from holdfast.verify.judge.judge_command import judge_file

HEADER = b'{"holdfast_history":1,"target":"t"}'
INVOKE = b'{"type":"invoke","time_ns":1,"op":1,"f":"append","session":"s","messages":["a"]}'
ACK = b'{"type":"ok","time_ns":2,"op":1}'
ASK = b'{"type":"invoke","time_ns":3,"op":2,"f":"history","session":"s"}'
DEEP = b"[" * 100_000 + b"]" * 100_000


def answer(messages: bytes) -> bytes:
    return b'{"type":"ok","time_ns":4,"op":2,"messages":%b}' % messages


BAD: dict[str, tuple[int, list[bytes]]] = {
    "a header nested deeply": (1, [b'{"holdfast_history":1,"x":%b}' % DEEP]),
    "an event nested deeply": (2, [HEADER, INVOKE[:-1] + b',"x":%b}' % DEEP]),
    "messages nested deeply": (2, [HEADER, INVOKE.replace(b'["a"]', DEEP)]),
    "an answer nested deeply": (5, [HEADER, INVOKE, ACK, ASK, answer(DEEP)]),
    "a time to live without end": (1, [b'{"holdfast_history":1,"ttl_s":1e999}']),
    "a time to live beyond a float": (1, [b'{"holdfast_history":1,"ttl_s":%b}' % (b"9" * 400)]),
    "a time to live that is no number": (1, [b'{"holdfast_history":1,"ttl_s":NaN}']),
    "a clock error beyond 64 bits": (1, [b'{"holdfast_history":1,"clock_error_s":1e300}']),
    "a time beyond 64 bits": (2, [HEADER, INVOKE.replace(b":1,", b":%d," % 2**63, 1)]),
    "a time that is no number": (2, [HEADER, INVOKE.replace(b":1,", b":NaN,", 1)]),
    "a time that is a truth value": (2, [HEADER, INVOKE.replace(b":1,", b":true,", 1)]),
    "a fraction": (2, [HEADER, INVOKE.replace(b'"op":1', b'"op":1.5')]),
    "half a character in a message": (2, [HEADER, INVOKE.replace(b'"a"', b'"\\ud800"')]),
    "half a character in a session": (2, [HEADER, INVOKE.replace(b'"s"', b'"\\ud800"')]),
    "bytes that are no text": (2, [HEADER, INVOKE.replace(b'"a"', b'"\xff"')]),
    "a message that is a number": (5, [HEADER, INVOKE, ACK, ASK, answer(b'["a",1]')]),
    "a message that is null": (5, [HEADER, INVOKE, ACK, ASK, answer(b"[null]")]),
    "an answer that is null": (5, [HEADER, INVOKE, ACK, ASK, answer(b"null")]),
    "an answer that is text": (5, [HEADER, INVOKE, ACK, ASK, answer(b'"a"')]),
    "a promise that nobody knows": (1, [b'{"holdfast_history":1,"claims":["durble"]}']),
    "a completion without an operation": (
        3,
        [HEADER, INVOKE.replace(b'"op":1', b'"op":-1'), ACK.replace(b',"op":1', b"")],
    ),
    "an empty line": (3, [HEADER, INVOKE, b"", ACK]),
    "two values on a line": (2, [HEADER, INVOKE + INVOKE]),
    "blanks": (2, [HEADER, b" " * 1_000_000]),
    "two lines, each wrong in its own way": (2, [HEADER, ACK, b"{"]),
    "nothing": (1, []),
    "zeros": (1, [b"\0" * 1000]),
}


@pytest.mark.parametrize("decoder", ["fast", "plain"])
@pytest.mark.parametrize("what", BAD)
def test_what_is_no_history_is_refused_by_its_line(
    what: str, decoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if decoder == "plain":
        monkeypatch.setattr(history, "_DECODER", _lines.PlainDecoder())
    line, lines = BAD[what]
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"".join(text + b"\n" for text in lines))

    with pytest.raises(NotAHistory) as refused:
        judge_file(path)

    assert refused.value.line == line


@pytest.mark.parametrize("text", [INVOKE[:-9], b"{", b"\0"], ids=["an event", "a brace", "a zero"])
def test_a_half_written_line_alone_behind_the_header_is_refused(
    text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(HEADER + b"\n" + text)

    with pytest.raises(NotAHistory, match="half written") as refused:
        judge_file(path)

    assert refused.value.line == 2


@pytest.mark.parametrize("lines", [[], [HEADER], [HEADER, INVOKE, ACK]], ids=len)
def test_a_line_that_does_not_end_is_refused_before_all_of_it_is_read(
    lines: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_LINE_BYTES_MAX", 1 << 12)
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    os.truncate(path, 1 << 33)  # zeros that take no room on the disk

    with pytest.raises(NotAHistory, match="longer than 4096 bytes") as refused:
        judge_file(path)

    assert refused.value.line == len(lines) + 1


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    os.mkfifo(path)

    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "judge", str(path)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert done.returncode == 4
    assert "no regular file" in done.stderr


def test_a_terminal_that_knows_ascii_only_gets_the_verdict_too(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(
        b"".join(t + b"\n" for t in [HEADER, INVOKE, ACK, ASK, answer('["å"]'.encode())])
    )

    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "judge", str(path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert rb"shows '\xe5'" in done.stdout
