"""What every request passes: host, origin, size, and the headers of every answer."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.chat import bounds
from holdfast.chat.places import Places, counted, is_full

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
PERSON: Final = "holdfast_person"
PASS: Final = "holdfast_pass"  # noqa: S105 - the name of a cookie
_OWN_COOKIE: Final = re.compile(rb"(?:%b|%b)=[\w-]{1,100}" % (PERSON.encode(), PASS.encode()))
log: Final = logging.getLogger("holdfast.chat")
ONCE: Final = frozenset({b"host", b"origin", b"sec-fetch-site"})
"""Said twice, one of them would be looked at, and the other believed by who stands before us."""
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Guard:
    """Refuses a request from another site, for another host, or of too many bytes.

    `hosts` are the names under which the service may be asked for; None for any. Without that
    a page on any site could point a name of its own at this machine and read the answers.
    """

    def __init__(self, app: App, *, hosts: frozenset[str] | None, limits: Limits) -> None:
        self._app = app
        self._hosts = hosts
        self._limits = limits
        self._places = Places(bounds.PLACES_PER_ADDRESS)
        self._requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = [
            (name, _own_cookies(value) if name == b"cookie" else value)
            for name, value in scope["headers"]
        ]
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        dressed = _Dressed(send, fresh=not scope["path"].startswith("/static/"))
        refused = self._refused(scope, headers)
        if refused is not None:
            await _answer(dressed, *refused)
            return
        load = scope["path"].startswith("/api/load/")
        limit = bounds.LOAD_BYTES_MAX if load else bounds.BODY_BYTES_MAX
        within_s = bounds.LOAD_TIMEOUT_S if load else bounds.BODY_TIMEOUT_S
        if int(_digits(headers.get("content-length"))) > limit:
            await _answer(dressed, 413, f"a request may have {limit} bytes; nothing was read")
            return
        try:
            bounded = _bounded(receive, limit, within_s)
            await self._in_place(scope, bounded, dressed, load=load)
        except ClientDisconnect:
            return  # there is nobody to answer, and nothing was done
        except HTTPException as error:
            await _answer(dressed, error.status_code, error.detail, error.headers)
        except Exception:
            # Here, because what is outside of this would answer without these headers.
            log.exception("a request failed")
            if dressed.begun:
                raise
            await _answer(dressed, 500, "this service has a defect; its log has the reason")

    async def _in_place(
        self, scope: Scope, receive: Receive, dressed: _Dressed, *, load: bool
    ) -> None:
        """Once its body is whole, and others of its address are done.

        A file that is loaded may come for minutes, so its place is given back before it is read:
        of each address one is loaded at a time.
        """
        address = address_of(scope)
        if is_full(self._requests, address, bounds.REQUESTS_MAX):
            words = "too many of your address wait already; nothing was done. Try again"
            raise HTTPException(429, words, {"Retry-After": "1"})
        if scope["method"] not in SAFE:  # here, where a refusal costs little
            self._limits.write_from(address)
        async with AsyncExitStack() as held:
            held.enter_context(counted(self._requests, address))
            given = _after(held.aclose, receive) if load else await _whole(receive)
            # The page, and whether the service lives, can be seen while a store is waited for.
            work = address if scope["path"].startswith("/api/") else (address, "page")
            await held.enter_async_context(self._places.held(work))
            dressed.before_stream = held.aclose
            await self._app(scope, given, dressed)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        said = [name for name, _ in scope["headers"] if name in ONCE]
        try:
            name = _name_in(host, said)
            origin = urlsplit(headers.get("origin", f"http://{host}")).netloc
        except ValueError:
            return 400, "Host, Origin or Sec-Fetch-Site is not written as one"
        if self._hosts is not None and name not in self._hosts:
            return 421, "this service does not answer under that name"
        if scope["method"] in SAFE:
            return None
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return 403, "another site may not write here"
        if "origin" in headers and origin != host:
            return 403, "another site may not write here"
        return None


def _name_in(host: str, said: list[bytes]) -> str:
    if len(set(said)) < len(said) or "@" in host:
        raise ValueError(said)
    return urlsplit(f"//{host}").hostname or ""


def _own_cookies(given: bytes) -> bytes:
    """Ours among the cookies: Python before 3.11.10 unquotes any other in the square of its length."""
    parts = (part.strip() for part in given.split(b";"))
    return b"; ".join(part for part in parts if _OWN_COOKIE.fullmatch(part))


def _digits(text: str | None) -> str:
    return text if text is not None and text.isascii() and text.isdigit() else "0"


def _bounded(receive: Receive, limit: int, within_s: float) -> Receive:
    """The same body, refused where it grows beyond the limit or is not whole in time."""
    taken, whole = 0, False
    end_s = time.monotonic() + within_s

    async def bounded() -> MutableMapping[str, Any]:
        nonlocal taken, whole
        try:
            # After the body comes only the news that the client has gone, and no bound is on that.
            async with asyncio.timeout(None if whole else end_s - time.monotonic()):
                message = await receive()
        except TimeoutError:
            words = f"the request was not there whole within {within_s:g} s; nothing was done"
            raise HTTPException(408, words, {"Connection": "close"}) from None
        whole = not message.get("more_body")
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, f"a request may have {limit} bytes; nothing was done")
        return message

    return bounded


async def _whole(receive: Receive) -> Receive:
    """The same request when all of its body is here."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    given = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def whole() -> MutableMapping[str, Any]:
        return given.pop() if given else await receive()

    return whole


def _after(done: Callable[[], Awaitable[None]], receive: Receive) -> Receive:
    async def after() -> MutableMapping[str, Any]:
        await done()
        return await receive()

    return after


class _Dressed:
    """Sends an answer with the headers that every answer has."""

    before_stream: Callable[[], Awaitable[None]] | None = None
    """Called when events are to be sent: those are waited for, which is no work."""

    def __init__(self, send: Send, *, fresh: bool) -> None:
        self._send = send
        self._fresh = fresh
        self.begun = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            own = dict(message.get("headers", []))
            is_stream = own.get(b"content-type", b"").startswith(b"text/event-stream")
            if is_stream and self.before_stream is not None:
                await self.before_stream()
            more = dict(HEADERS)
            more[b"cache-control"] = b"no-store" if self._fresh else b"no-cache"
            message["headers"] = [
                *message.get("headers", []),
                *((name, value) for name, value in more.items() if name not in own),
            ]
        await self._send(message)


async def _answer(
    send: Send, status: int, words: str, more: Mapping[str, str] | None = None
) -> None:
    body = json.dumps({"error": "Refused", "outcome": "not done", "message": words}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in (more or {}).items()]
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

    def give_back(self, name: str) -> None:
        """The last one is not counted."""
        if name in self._left:
            left, at = self._left[name]
            self._left[name] = (left + 1, at)


class Limits:
    """How much one person and one address may write, and how often a token may be guessed."""

    def __init__(self, per_s: float) -> None:
        burst = max(bounds.RATE_BURST, int(per_s))
        share = bounds.PEOPLE_PER_ADDRESS
        self._people = Rate(per_s, burst)
        self._addresses = Rate(per_s * share, burst * share)
        self._guesses = Rate(bounds.SIGN_IN_PER_S, bounds.SIGN_IN_BURST)

    def write(self, person: str) -> None:
        """Count one that writes."""
        _pass(self._people.wait_s(person))

    def write_from(self, address: str) -> None:
        """Any 43 characters are a person, so the address counts too."""
        _pass(self._addresses.wait_s(address))

    def guess(self, address: str) -> None:
        """Count a token that is about to be looked at; give it back by `right`."""
        _pass(self._guesses.wait_s(address))

    def right(self, address: str) -> None:
        """The token was right: who knows it is no guesser."""
        self._guesses.give_back(address)


def _pass(wait_s: float) -> None:
    if wait_s:
        after = {"Retry-After": str(int(wait_s) + 1)}
        raise HTTPException(429, f"too many at once; try again in {wait_s:.1f} s", after)


def address_of(scope: Scope) -> str:
    """Who asks: an IPv4 address, or the network of 64 bits that one customer is given."""
    host = str((scope.get("client") or [""])[0])
    parsed = parsed_host(host)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed.packed, 64), strict=False))
    return host if parsed is None else str(parsed)


def parsed_host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; None if it is none. Where one socket serves both, ::ffff:192.0.2.1 is IPv4."""
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


class Proxies:
    """Whose word about where a request comes from is believed: addresses, networks, or *."""

    def __init__(self, words: str = "") -> None:
        parts = [part.strip() for part in words.split(",") if part.strip()]
        every = ["0.0.0.0/0", "::/0"] if parts == ["*"] else parts
        self._networks = [ipaddress.ip_network(part) for part in every]

    def __contains__(self, host: str) -> bool:
        parsed = parsed_host(host)
        return parsed is not None and any(parsed in network for network in self._networks)
