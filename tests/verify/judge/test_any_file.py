"""Whatever a file holds, `judge` gives a verdict or names the line that is wrong."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

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
    "a time before zero": (2, [HEADER, INVOKE.replace(b":1,", b":-1,", 1)]),
    "a version that is a truth value": (1, [b'{"holdfast_history":true}', INVOKE, ACK]),
    "a header of two megabytes": (1, [HEADER[:-1] + b',"x":[%b[]]}' % (b"[]," * 700_000)]),
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


VALUES = (
    *(b"1 0 -1 -0 1.0 1e2 01 NaN -Infinity null true 1e400 9223372036854775808 +1 [1,2] [1.0] [true]".split()),
    *(b'"" "a" ["a"] {} [] [[]] ["a",] [null] "append" "fault" "ok" {"a":NaN} 18446744073709551616'.split()),
    *(rb'"\u0061" "\u0000" "\ud83d\ude00" "\ud800" ["\ud800"] "\u00" "\x41"'.split()),
    b"1" * 25, b"1" * 5000, b'"\x01"', b'"\xc3\xa9"', b'"\xc3"', b'["a" , "b"]', b'"\xef\xbb\xbf"',
)  # fmt: skip
NAMES = b"type time_ns op process f session messages limit seqs key name closes landed x TYPE ty\\u0070e".split()
EVENTS = (INVOKE, ASK, b'{"type":"fault","time_ns":3,"name":"kill","closes":[]}')


def odd_lines(rng: random.Random) -> list[bytes]:
    """An event with a field or two too many, before or behind its own, and an answer to it."""
    first = rng.choice(EVENTS)[1:-1]
    for _ in range(rng.choice((1, 1, 2))):
        extra = b'"%b" : %b' % (rng.choice(NAMES), rng.choice(VALUES))
        first = b",".join((extra, first) if rng.random() < 0.5 else (first, extra))
    before = rng.choice((b"", b"", b" ", b"\t", b"\r", b"\x0c", b"\xef\xbb\xbf"))
    after = rng.choice((b"", b"", b"\r", b" ", b"\n", b","))
    answer = b'{"type":"ok","time_ns":4,"op":1,"%b":%b}' % (rng.choice(NAMES), rng.choice(VALUES))
    return [HEADER, before + b"{" + first + b"}" + after, *([answer] * (rng.random() < 0.2))]


def understood(path: Path) -> object:
    try:
        read = history.read_history(path)
        return [(o, o.ids() if o.messages else None) for o in read.operations.values()], read.faults
    except NotAHistory as error:
        return error.line


def without_text(what: object) -> str:
    """The ids themselves count, not the blanks between them in the file."""
    return re.sub(r"messages=b'[^']*'", "", repr(what))


def test_both_decoders_understand_odd_lines_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields twice, NaN, big numbers, escapes, a byte order mark, CRLF, fields nobody knows."""
    fast, path = history._DECODER, tmp_path / "h.jsonl"
    assert not isinstance(fast, _lines.PlainDecoder)
    accepted = 0
    for number in range(1000):
        path.write_bytes(b"".join(line + b"\n" for line in odd_lines(random.Random(number))))
        monkeypatch.setattr(history, "_DECODER", fast)
        one = understood(path)
        monkeypatch.setattr(history, "_DECODER", _lines.PlainDecoder())
        assert without_text(one) == without_text(understood(path)), path.read_bytes()
        accepted += not isinstance(one, int)
    assert 50 < accepted < 950


@pytest.mark.parametrize("change", [lambda f: f.truncate(40), lambda f: f.write(ACK)])
def test_a_file_that_changes_while_it_is_read_is_refused(
    change: Callable[[BinaryIO], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in (HEADER, INVOKE, ACK)))
    inside = _lines.numbered

    def meanwhile(*args: Any) -> Iterator[tuple[int, _lines.Line]]:
        with path.open("ab") as file:
            change(file)
        return inside(*args)

    monkeypatch.setattr(_lines, "numbered", meanwhile)

    with pytest.raises(NotAHistory, match="changed while it was read"):
        judge_file(path)


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


def numbered(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(count)]


def history_of(*operations: tuple[str, list[str]], key: str | None = None) -> bytes:
    """One operation after the other on one session, each acknowledged."""
    lines: list[dict[str, Any]] = [{"holdfast_history": 1, "target": "t"}]
    for op, (f, messages) in enumerate(operations):
        mine = {"messages": messages, "key": key} if f == "append" else {}
        answer = {"messages": messages} if f == "history" else {}
        lines += [
            {"type": "invoke", "time_ns": 10 * op, "op": op, "f": f, "session": "s", **mine},
            {"type": "ok", "time_ns": 10 * op + 5, "op": op, **answer},
        ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def mixed(one: list[str], other: list[str]) -> list[str]:
    return [message for pair in zip(one, other, strict=True) for message in pair]


A, B, LONG = numbered("a", 200), numbered("b", 200), numbered("m", 1000)
COSTLY = {
    "a long batch backwards": (1, history_of(("append", LONG), ("history", LONG[::-1]))),
    "every other of a long batch": (
        1,
        history_of(("append", numbered("m", 4000)), ("history", numbered("m", 4000)[::2])),
    ),
    "two long batches in each other": (
        1,
        history_of(("append", A), ("append", B), ("history", mixed(A, B))),
    ),
    "a long batch tried again": (
        0,
        history_of(
            *[("append", numbered("m", 30_000))] * 2, ("history", numbered("m", 30_000)), key="k"
        ),
    ),
}


@pytest.mark.parametrize("what", COSTLY)
def test_the_time_that_a_verdict_takes_does_not_explode_with_its_file(
    what: str, tmp_path: Path
) -> None:
    """Seconds of processor, not of a clock: other work on the machine does not count."""
    code, text = COSTLY[what]
    path = tmp_path / "h.jsonl"
    path.write_bytes(text)
    bounded = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20));"
        "from holdfast.cli import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", bounded, "judge", str(path)],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == code, done.stderr
