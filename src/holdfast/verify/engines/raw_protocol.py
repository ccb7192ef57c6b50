"""The few words that the kit itself says to an engine, without any driver.

Enough to ask "do you answer?", to read a setting back and to steer a replica. One short
connection per call, every wait bounded; `OSError` where nobody answers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import struct
from typing import IO, Any, Final

HOST: Final = "127.0.0.1"
REPLY_TIMEOUT_S: Final = 10.0
REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
_SASL: Final = 10
"""What PostgreSQL says where it wants SCRAM."""


class ReplyError(OSError):
    """The engine answered with an error of its own."""


def redis_call(
    port: int, *words: str | bytes, password: str = "", timeout_s: float = REPLY_TIMEOUT_S
) -> Any:
    """Send one command to a Redis; its reply as str, int, None or list of these."""
    return redis_calls(port, words, password=password, timeout_s=timeout_s)[0]


def redis_calls(
    port: int,
    *commands: tuple[str | bytes, ...],
    password: str = "",
    timeout_s: float = REPLY_TIMEOUT_S,
) -> list[Any]:
    """Send several commands at once; their replies in order. The first error is raised."""
    if password:
        return redis_calls(port, ("AUTH", password), *commands, timeout_s=timeout_s)[1:]
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
    password: str = "",
    database: str = "postgres",
    timeout_s: float = REPLY_TIMEOUT_S,
) -> list[tuple[str | None, ...]]:
    """Run one statement on a PostgreSQL; its rows as text."""
    with socket.create_connection((HOST, port), timeout_s) as link, link.makefile("rb") as replies:
        names = f"user\0{user}\0database\0{database}\0\0".encode()
        link.sendall(struct.pack("!ii", 8 + len(names), 3 << 16) + names)
        _log_in(link, replies, password)
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
        elif kind == b"Z":
            if failure:
                raise ReplyError(failure)
            return rows


def _log_in(link: socket.socket, replies: IO[bytes], password: str) -> None:
    """Whatever it asks for up to "ready for query": nothing, or SCRAM-SHA-256 (RFC 5802)."""
    asked, body = _asked(replies)
    if asked == _SASL:
        nonce = base64.b64encode(os.urandom(18)).decode()
        bare = f"n=,r={nonce}"
        first = f"n,,{bare}".encode()
        _answer(link, b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
        _, body = _asked(replies)
        said = body.decode()
        theirs, salt, rounds = (part[2:] for part in said.split(",")[:3])
        final = f"c=biws,r={theirs}"
        salted = hashlib.pbkdf2_hmac(
            "sha256", password.encode(), base64.b64decode(salt), int(rounds)
        )
        key = _hmac(salted, b"Client Key")
        signed = _hmac(hashlib.sha256(key).digest(), f"{bare},{said},{final}".encode())
        proof = bytes(mine ^ other for mine, other in zip(key, signed, strict=True))
        _answer(link, f"{final},p={base64.b64encode(proof).decode()}".encode())
        _asked(replies)
    elif asked != 0:
        raise ReplyError("it asks for a password in a way that is not known here")
    _postgres_rows(replies)


def scram_verifier(password: str) -> str:
    """What PostgreSQL keeps of a password: one round, since a random one needs no stretching."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    words = [
        base64.b64encode(part).decode() for part in (salt, stored, _hmac(salted, b"Server Key"))
    ]
    return f"SCRAM-SHA-256$1:{words[0]}${words[1]}:{words[2]}"


def _hmac(key: bytes, words: bytes) -> bytes:
    return hmac.digest(key, words, "sha256")


def _asked(replies: IO[bytes]) -> tuple[int, bytes]:
    """Which authentication is asked for, and the words that come with it."""
    kind, size = struct.unpack("!ci", _exactly(replies, 5))
    body = _exactly(replies, size - 4)
    if kind != b"R":
        raise ReplyError(_postgres_error(body))
    return int.from_bytes(body[:4]), body[4:]


def _answer(link: socket.socket, words: bytes) -> None:
    link.sendall(b"p" + struct.pack("!i", 4 + len(words)) + words)


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
