"""The few words that the kit itself says to an engine, without any driver.

Enough to ask "do you answer?", to read a setting back and to steer a replica. One short
connection per call, every wait bounded; `OSError` where nobody answers.
"""

from __future__ import annotations

import socket
import struct
from typing import IO, Any, Final

HOST: Final = "127.0.0.1"
REPLY_TIMEOUT_S: Final = 10.0
REPLY_BYTES_MAX: Final = 16 * 1024 * 1024


class ReplyError(OSError):
    """The engine answered with an error of its own."""


def redis_call(port: int, *words: str | bytes, timeout_s: float = REPLY_TIMEOUT_S) -> Any:
    """Send one command to a Redis; its reply as str, int, None or list of these."""
    return redis_calls(port, words, timeout_s=timeout_s)[0]


def redis_calls(
    port: int, *commands: tuple[str | bytes, ...], timeout_s: float = REPLY_TIMEOUT_S
) -> list[Any]:
    """Send several commands at once; their replies in order. The first error is raised."""
    with socket.create_connection((HOST, port), timeout_s) as link, link.makefile("rb") as replies:
        link.sendall(b"".join(_redis_command(words) for words in commands))
        return [_redis_reply(replies) for _ in commands]


def _redis_command(words: tuple[str | bytes, ...]) -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def _redis_reply(replies: IO[bytes]) -> Any:
    line = replies.readline(65536).rstrip(b"\r\n")
    mark, rest = line[:1], line[1:].decode("utf-8", "replace")
    if mark == b"-":
        raise ReplyError(rest)
    if mark == b"+":
        return rest
    if mark == b":":
        return int(rest)
    if mark == b"$":
        return _redis_bulk(replies, int(rest))
    if mark == b"*":
        return [_redis_reply(replies) for _ in range(int(rest))]
    raise ConnectionResetError("the connection ended before a reply")


def _redis_bulk(replies: IO[bytes], size: int) -> str | None:
    if size < 0:
        return None
    if size > REPLY_BYTES_MAX:
        raise ReplyError(f"a reply of {size} bytes is larger than {REPLY_BYTES_MAX}")
    return _exactly(replies, size + 2)[:-2].decode("utf-8", "replace")


def postgres_query(
    port: int,
    statement: str,
    *,
    user: str = "postgres",
    database: str = "postgres",
    timeout_s: float = REPLY_TIMEOUT_S,
) -> list[tuple[str | None, ...]]:
    """Run one statement on a PostgreSQL that trusts this machine; its rows as text."""
    with socket.create_connection((HOST, port), timeout_s) as link, link.makefile("rb") as replies:
        names = f"user\0{user}\0database\0{database}\0\0".encode()
        link.sendall(struct.pack("!ii", 8 + len(names), 3 << 16) + names)
        _postgres_rows(replies)
        body = statement.encode() + b"\0"
        link.sendall(b"Q" + struct.pack("!i", 4 + len(body)) + body)
        rows = _postgres_rows(replies)
        link.sendall(b"X\0\0\0\4")
        return rows


def _postgres_rows(replies: IO[bytes]) -> list[tuple[str | None, ...]]:
    """Read up to "ready for query"; an error is raised after it, so that none is half read."""
    rows = []
    failure = None
    while True:
        kind, size = struct.unpack("!ci", _exactly(replies, 5))
        body = _exactly(replies, size - 4)
        if kind == b"D":
            rows.append(_postgres_row(body))
        elif kind == b"E":
            failure = _postgres_error(body)
            if failure.startswith(("FATAL", "PANIC")):
                raise ReplyError(failure)
        elif kind == b"R" and body[:4] != b"\0\0\0\0":
            raise ReplyError("it asks for a password")
        elif kind == b"Z":
            if failure:
                raise ReplyError(failure)
            return rows


def _postgres_row(body: bytes) -> tuple[str | None, ...]:
    values: list[str | None] = []
    at = 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode("utf-8", "replace"))
        at += max(size, 0)
    return tuple(values)


def _postgres_error(body: bytes) -> str:
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    return f"{fields.get(b'S', 'ERROR')}: {fields.get(b'M', '?')}"


def http_status(port: int, path: str, *, timeout_s: float = REPLY_TIMEOUT_S) -> int:
    """GET the path; the status that came back."""
    with socket.create_connection((HOST, port), timeout_s) as link, link.makefile("rb") as replies:
        request = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n"
        link.sendall(request.encode())
        words = replies.readline(65536).split()
    if len(words) < 2:  # noqa: PLR2004 - "HTTP/1.1 200"
        raise ConnectionResetError("the connection ended before a reply")
    return int(words[1])


def _exactly(replies: IO[bytes], size: int) -> bytes:
    data = replies.read(size)
    if len(data) != size:
        raise ConnectionResetError("the connection ended in the middle of a reply")
    return data
