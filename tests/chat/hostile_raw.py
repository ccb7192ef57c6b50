"""Bytes that no library for HTTP would send: heads and bodies that lie, never end, or are none."""

from __future__ import annotations

import contextlib
import random
import socket
from collections import deque
from urllib.parse import urlsplit

from holdfast.chat.people import new_token

LOOK_S = 0.3
"""Somebody who means harm does not wait for an answer to what they never finish."""
WAITING = 20
"""Connections that each attacker leaves unfinished at the same time."""
MESSAGES = "/api/conversations/conversation-1/messages"
LENGTHS = ("-1", "+5", "0x10", "5, 6", "1e3", " ", "\u0665", "9" * 5000, "18446744073709551617")
PATHS = (
    "/static/../../../../etc/passwd", "/static/%2e%2e/%2e%2e/app.py", "/static/..%5c..%5capp.py",
    "/static//etc/passwd", "//etc/passwd", "/static/%00", "/static/\x00", "/%ff%fe", "/\xff", "*", "http://evil/",
    "/openapi.json", "/healthz", "/?" + "a=1&" * 10_000, "/static/main.js",
)  # fmt: skip
HEADERS = (
    "Range: bytes=" + ",".join(f"{at}-{at}" for at in range(0, 20_000, 2)),
    "Range: bytes=" + "0-," * 15_000,
    "Range: bytes=-" + "9" * 40,
    "If-Modified-Since: " + "9" * 60_000,
    "If-None-Match: " + '"a",' * 15_000,
    "Accept: " + "a/b;q=0.1," * 6000,
    "Cookie: " + "; ".join(f"c{at}=1" for at in range(8000)),
    'Cookie: holdfast_person="\\377\\000; holdfast_pass=\xff',
    "Authorization: Bearer \xff\xfe",
    "X-Forwarded-For: " + "127.0.0.1, " * 5000,
    "X-Forwarded-Proto: https\r\nForwarded: for=127.0.0.1",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==",
    "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
    "Expect: 100-continue", "Connection: close\r\nHost: other", "X: a\r\n folded", "X : blank", ": none",
    "\r\n".join(f"X-{at}: 1" for at in range(3000)), "X: " + "a" * 60_000, "Origin: null",
)  # fmt: skip
BODIES = (
    b'{"text":"\xff\xfe","key":"KEY"}', b'\xef\xbb\xbf{"text":"a","key":"KEY"}', b'"\\ud800"',
    b'{"text":"\\ud800","key":"KEY"}', b'{"text":"\\u0000","key":"KEY"}', b'{"text":NaN,"key":"KEY"}',
    b'{"text":"a","text":"b","key":"KEY"}', b'{"text":"a","key":"KEY","utc_offset_minutes":' + b"9" * 5000 + b"}",
    '{"text":"a","key":"KEY"}'.encode("utf-16"), '{"text":"a","key":"KEY"}'.encode("utf-32"),
    b"[" * 120_000, b'{"a":' * 20_000, b"1" * 100_000, b"\x00" * 1000, b"",
    b'{"token":"\\ud800"}', b'{"query":"\\ud800"}', b'{"__proto__":{},"text":{"a":1},"key":[]}',
)  # fmt: skip


class RawAttacker:
    """Sends bytes, and leaves unfinished what the service still waits for."""

    def __init__(self, url: str, address: str, chance: random.Random) -> None:
        parts = urlsplit(url)
        self._to, self._host = (parts.hostname, parts.port), parts.netloc
        self._from, self._chance = (address, 0), chance
        self._waiting: deque[socket.socket] = deque()

    def send(self) -> int:
        """One hostile request: the status of its (first) answer, 0 if there is none."""
        link = socket.create_connection(self._to, 60, source_address=self._from)
        with contextlib.suppress(OSError):  # the service hung up, which is its right
            link.sendall(self._words())
            link.settimeout(LOOK_S)
            head = link.recv(4096)
            link.close()
            return int(head[9:12]) if head.startswith(b"HTTP/1.1 ") else 0
        self._waiting.append(link)
        if len(self._waiting) > WAITING:
            self._waiting.popleft().close()
        return 0

    def close(self) -> None:
        """Leave."""
        while self._waiting:
            self._waiting.pop().close()

    def _words(self) -> bytes:
        chance = self._chance
        body = chance.choice(BODIES).replace(b"KEY", b"key-%016d" % chance.randrange(10**9))
        length = f"Content-Length: {len(body)}"
        return chance.choice((
            lambda: self._head("GET", chance.choice(PATHS)) + b"\r\n",
            lambda: self._head("GET", "/static/main.js", chance.choice(HEADERS)) + b"\r\n",
            lambda: self._head("GET", "/", chance.choice(HEADERS)) + b"\r\n",
            lambda: self._head("GET", "/api/conversations", chance.choice(HEADERS)) + b"\r\n",
            lambda: self._head("POST", MESSAGES, length) + b"\r\n" + body,
            lambda: self._head("POST", "/api/sign-in", length) + b"\r\n" + body,
            lambda: self._head("POST", "/api/memories/search", length) + b"\r\n" + body,
            lambda: self._head("POST", MESSAGES, f"Content-Length: {chance.choice(LENGTHS)}") + b"\r\n" + body,
            lambda: self._head("POST", MESSAGES, length, "Transfer-Encoding: chunked") + b"\r\n" + body,
            lambda: self._head("POST", MESSAGES, length, "Content-Length: 1") + b"\r\n" + body,
            self._chunked,
            self._unfinished,
            lambda: (self._head("GET", "/api/conversations") + b"\r\n") * 200,
            lambda: (self._head("POST", "/api/forget-all", "Content-Length: 0") + b"\r\n") * 50,
            lambda: chance.randbytes(chance.choice((1, 100, 100_000))),
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            lambda: b"GET /\r\n\r\n",
            lambda: b"\r\n" * 50_000,
        ))()  # fmt: skip

    def _head(self, method: str, path: str, *headers: str) -> bytes:
        own = (f"Host: {self._host}", f"Cookie: holdfast_person={new_token()}")
        kind = "Content-Type: application/json"
        lines = (f"{method} {path} HTTP/1.1", *own, kind, *headers, "")
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def _chunked(self) -> bytes:
        size = self._chance.choice((b"F" * 16, b"-1", b"zz", b"0x5", b"5;" + b"a" * 60_000, b"5"))
        head = self._head("POST", f"/api/load/{'k' * 20}", "Transfer-Encoding: chunked")
        return head + b"\r\n" + size + b"\r\nabcde\r\n"

    def _unfinished(self) -> bytes:
        head = self._head("POST", MESSAGES, "Content-Length: 100000")
        return self._chance.choice(
            (head, head + b"X: ", head + b"\r\n", head + b'\r\n{"text":"', b"G")
        )
