"""Several addresses that ask at full speed, all of them from one process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from urllib.parse import urlsplit

from holdfast.chat.people import new_token
from tests.chat.hostile_raw import MESSAGES

CONNECTIONS = 30
"""Of each address."""
TEXT = "".join(f"My dog number {at} is called Rex. " for at in range(400))[:13_000]


def flood(url: str, way: str, addresses: int, for_s: float) -> Counter[str]:
    """What was answered. `way`: read, or write long messages on new or on kept connections."""
    seen: Counter[str] = Counter()
    end_s = time.monotonic() + for_s

    async def ask_on(address: str) -> None:
        while time.monotonic() < end_s:
            try:
                async with asyncio.timeout(60):
                    await _ask(url, address, way, end_s, seen)
            except (OSError, EOFError, TimeoutError) as error:
                seen[type(error).__name__] += 1

    async def work() -> None:
        every = range(addresses * CONNECTIONS)
        await asyncio.gather(*(ask_on(f"127.0.1.{at % addresses + 1}") for at in every))

    asyncio.run(work())
    return seen


async def _ask(url: str, address: str, way: str, end_s: float, seen: Counter[str]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, local_addr=(address, 0)
    )
    try:
        while time.monotonic() < end_s:
            writer.write(_words(parts.netloc, way))
            seen[await _status(reader)] += 1
            if way == "new":
                return
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _words(host: str, way: str) -> bytes:
    own = f"Host: {host}\r\nCookie: holdfast_person={new_token()}\r\n"
    if way == "read":
        return f"GET /api/conversations HTTP/1.1\r\n{own}\r\n".encode()
    body = json.dumps({"text": TEXT, "key": f"key-{secrets.token_hex(10)}"})
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST {MESSAGES} HTTP/1.1\r\n{own}{kind}\r\n{body}".encode()


async def _status(reader: asyncio.StreamReader) -> str:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    return head[9:12].decode()
