"""What every request passes: host, origin, size, and the headers of every answer."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from holdfast.chat import bounds

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    """Refuses a request from another site, for another host, or of too many bytes.

    `hosts` are the names under which the service may be asked for; None for any. Without that
    a page on any site could point a name of its own at this machine and read the answers.
    """

    def __init__(self, app: App, *, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        dressed = _dressed(send, fresh=not scope["path"].startswith("/static/"))
        refused = self._refused(scope, headers)
        if refused is not None:
            await _answer(dressed, *refused)
            return
        load = scope["path"].startswith("/api/load/")
        limit = bounds.LOAD_BYTES_MAX if load else bounds.BODY_BYTES_MAX
        if int(_digits(headers.get("content-length"))) > limit:
            await _answer(dressed, 413, f"a request may have {limit} bytes; nothing was read")
            return
        await self._app(scope, _counted(receive, limit), dressed)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._hosts is not None and (urlsplit(f"//{host}").hostname or "") not in self._hosts:
            return 421, "this service does not answer under that name"
        if scope["method"] in SAFE:
            return None
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return 403, "another site may not write here"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "another site may not write here"
        return None


def _digits(text: str | None) -> str:
    return text if text is not None and text.isascii() and text.isdigit() else "0"


def _counted(receive: Receive, limit: int) -> Receive:
    """The same body, refused where it grows beyond the limit, whatever length it announced."""
    taken = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, f"a request may have {limit} bytes; nothing was done")
        return message

    return counted


def _dressed(send: Send, *, fresh: bool) -> Send:
    async def dressed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", [])}
            more = dict(HEADERS)
            more[b"cache-control"] = b"no-store" if fresh else b"no-cache"
            message["headers"] = [
                *message.get("headers", []),
                *((name, value) for name, value in more.items() if name not in own),
            ]
        await send(message)

    return dressed


async def _answer(send: Send, status: int, words: str) -> None:
    body = json.dumps({"error": "Refused", "outcome": "not done", "message": words}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Rate:
    """So many at once, and so many per second in the long run, for each name. Bounded itself."""

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str) -> float:
        """0 if this one may pass now, and then it is counted; otherwise how long to wait."""
        now = self._clock()
        left, at = self._left.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_s)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_s
        self._left[name] = (left if wait else left - 1, now)
        if len(self._left) > bounds.PEOPLE_COUNTED_MAX:
            self._left.popitem(last=False)
        return wait
