"""Anybody's chat page in a real browser: what was sent has to be there after a SIGKILL.

    def test_it_does_not_forget(app_service, chat_page):
        service = app_service("uvicorn app:app --port {port}", health="/health")
        page = chat_page(service, box="#text", message=".message")
        page.survives("My name is Xiao Li").hold()
        page.survives_at_response("I live in Porto").hold()

The page is named by its selectors only. Every browser is a process of its own with a profile
that stays, so that closing it and coming back is what a person does. Bytes pass through a
proxy on loopback, which knows the moment of the response.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.errors import EngineMissing, FaultNotProven, UsageError
from holdfast.verify.blocks import Block
from holdfast.verify.faults.proxy import Proxy
from holdfast.verify.proof import Evidence

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, Route

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S: Final = 30.0
LOOK_S: Final = 10.0
STATUS_OK: Final = range(200, 300)


class Mortal(Protocol):
    """What can be killed and brought back: a service, an engine."""

    def kill(self) -> Evidence:
        """SIGKILL, proven."""

    def start(self) -> Any:
        """Come back on the same data and port."""


class Powered(Protocol):
    """What can lose what is not on its disk: an engine that was started with `power`."""

    def power_cut(self) -> Evidence:
        """End it, and drop what it had not synced."""

    def start(self) -> Any:
        """Come back on the rest."""


class Served(Mortal, Protocol):
    """The same, with the address of its page."""

    @property
    def url(self) -> str:
        """Where it answers."""


@dataclass(frozen=True, slots=True)
class Selectors:
    """Where a page takes a message and where it shows messages."""

    box: str
    message: str
    send: str | None = None
    """A button; without one Enter sends."""
    saved: str | None = None
    """Inside a message: there as soon as the page says that it is saved."""
    path: str = "/"


@dataclass(frozen=True, slots=True)
class Remembered:
    """Whether a message was on the page again, and the proof of what was done to the service."""

    text: str
    there: bool
    shown: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    def __bool__(self) -> bool:
        return self.there

    def hold(self) -> None:
        """Raise `AssertionError` with the evidence unless it was there."""
        if not self.there:
            done = "; ".join(f"{one.fault}: {one.seen}" for one in self.evidence)
            raise AssertionError(
                f"{self.text!r} was acknowledged, and is gone. Done to it: {done}. "
                f"The page shows {list(self.shown)!r}"
            )


def find_browser() -> str:
    """The path of a Chromium on this machine."""
    for name in BROWSERS:
        if (path := shutil.which(name)) is not None:
            return path
    raise EngineMissing(
        f"no browser on PATH; looked for {', '.join(BROWSERS)}. On Debian: apt-get install chromium"
    )


def start_playwright() -> Any:
    """What drives browsers; `EngineMissing` with the hint where it is not installed."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EngineMissing(
            "a browser is driven by Playwright, which is not installed. Run: pip install "
            "'holdfast[browser]'"
        ) from error
    return sync_playwright().start()


class ChatPage(Block):
    """One person with one browser, who comes and goes."""

    def __init__(
        self,
        playwright: Playwright,
        service: Served,
        selectors: Selectors,
        *,
        wait_s: float = WAIT_S,
        look_s: float = LOOK_S,
        browser: Browser | None = None,
        **options: Any,
    ) -> None:
        """A page and its service may take `wait_s`; a message not seen within `look_s` is gone.

        `browser`: one that runs already, where many tests share it; then a profile of its own.
        """
        self.service = service
        self._selectors = selectors
        self._playwright = playwright
        self._wait_s, self._look_s = wait_s, look_s
        self._browser = browser
        self._options = options
        self._state: Any = None
        self._profile = Path(tempfile.mkdtemp(prefix="holdfast-browser-"))
        self._proxy = Proxy(service.url).start()
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._sent: set[str] = set()

    @property
    def page(self) -> Page:
        """The page itself, for whatever else a test wants to see."""
        if self._page is None:
            raise UsageError("the browser is closed: open() it first")
        return self._page

    @property
    def proxy(self) -> Proxy:
        """What stands between the browser and the service."""
        return self._proxy

    def open(self, *, silent: bool = False) -> Page:
        """Start the browser if it is closed, and load the page; returns when it takes a message.

        `silent`: it cannot send again what it has kept by itself, which would prove nothing about
        the service.
        """
        if self._context is None:
            self._context = self._launch()
            self._context.set_default_timeout(self._wait_s * 1000)
            pages = self._context.pages
            self._page = pages[0] if pages else self._context.new_page()
            self._page.on("request", self._note)
        for address in self._sent if silent else ():
            self.page.route(address, _refuse)
        self.page.goto(self._proxy.url.rstrip("/") + self._selectors.path)
        self.page.locator(self._selectors.box).wait_for()
        return self.page

    def _launch(self) -> BrowserContext:
        if self._browser is not None:
            return self._browser.new_context(storage_state=self._state, **self._options)
        return self._playwright.chromium.launch_persistent_context(
            self._profile, executable_path=find_browser(), **self._options
        )

    def leave(self) -> Evidence:
        """Close the browser: no page, no script and no connection of it goes on."""
        if self._context is not None and self._browser is not None:
            self._state = self._context.storage_state()
        if self._context is not None:
            self._context.close()
        self._context = self._page = None
        return Evidence("leave", "the browser was closed")

    def send(self, text: str) -> int:
        """Type and send; the status of the answer. Where `saved` is named, wait for that too."""
        with self.page.expect_response(
            lambda answer: answer.request.method != "GET", timeout=self._wait_s * 1000
        ) as answer:
            self.type(text)
        status = answer.value.status
        if self._selectors.saved is not None and status in STATUS_OK:
            self._message(text).locator(self._selectors.saved).last.wait_for()
        return status

    def type(self, text: str) -> None:
        """Type and send, without waiting for an answer."""
        box = self.page.locator(self._selectors.box)
        box.fill(text)
        if self._selectors.send is None:
            box.press("Enter")
        else:
            self.page.locator(self._selectors.send).click()

    def has(self, text: str, *, within_s: float | None = None) -> bool:
        """Whether a message with this text is shown (as saved, if `saved` is named) in time."""
        from playwright.sync_api import TimeoutError as NotThere  # noqa: PLC0415 - an extra

        wait_ms = (self._look_s if within_s is None else within_s) * 1000
        wanted = self._message(text)
        if self._selectors.saved is not None:
            wanted = wanted.locator(self._selectors.saved)
        try:
            wanted.first.wait_for(timeout=wait_ms)
        except NotThere:
            return False
        return True

    def shown(self) -> tuple[str, ...]:
        """The text of every message on the page."""
        return tuple(self.page.locator(self._selectors.message).all_inner_texts())

    def survives(self, text: str, *, also: Sequence[Mortal] = ()) -> Remembered:
        """Open, send, close the browser, SIGKILL, start, open: is it there?

        `also` are engines that are killed with the service.
        """
        self.open()
        status = self.send(text)
        self._acknowledged(text, status)
        done = [self.leave(), *self._kill_and_start(also)]
        return self._again(text, done)

    def survives_at_response(
        self, text: str, *, also: Sequence[Mortal] = (), power: Sequence[Powered] = ()
    ) -> Remembered:
        """SIGKILL at the moment of the response: it has left the service, and is not yet here.

        A service that answers before the message is durable is caught, however soon after it would
        have been. The power of the engines in `power` is cut at that moment: one that answers
        before it is on the disk is caught as well.
        """
        self.open()
        done: list[Evidence] = []

        def strike(_: bytes) -> str:
            done.extend(one.power_cut() for one in power)
            done.extend(one.kill() for one in (self.service, *also))
            return done[0].seen

        armed = self._proxy.at_reply(strike, match=_mark(text))
        self.type(text)
        moment = armed.landed(timeout_s=self._wait_s)
        self._acknowledged(text, _status(moment.facts["reply"]))
        self.leave()
        struck: list[Powered | Mortal] = [*power, *also, self.service]
        for one in struck:
            one.start()
        return self._again(text, [moment, *done])

    def close(self) -> None:
        """Close the browser and throw its profile away."""
        self.leave()
        self._proxy.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _kill_and_start(self, also: Sequence[Mortal]) -> list[Evidence]:
        killed = [one.kill() for one in (self.service, *also)]
        for one in (*also, self.service):
            one.start()
        return killed

    def _again(self, text: str, done: list[Evidence]) -> Remembered:
        begun = time.monotonic()
        self.open(silent=True)
        there = self.has(text)
        done.append(
            Evidence("open", f"the page was there again, {time.monotonic() - begun:.1f} s later")
        )
        return Remembered(text, there, self.shown(), tuple(done))

    def _acknowledged(self, text: str, status: int) -> None:
        if status not in STATUS_OK:
            raise FaultNotProven(
                f"the service did not take {text!r} (HTTP {status}): nothing to be remembered"
            )

    def _note(self, request: Request) -> None:
        if request.method != "GET":
            self._sent.add(request.url)

    def _message(self, text: str) -> Any:
        return self.page.locator(self._selectors.message).filter(has_text=text)


def _refuse(route: Route) -> None:
    if route.request.method == "GET":
        route.continue_()
    else:
        route.abort()


def _mark(text: str) -> bytes:
    """What tells the request with this text from others: its longest word, which any form keeps."""
    return max(re.findall("[A-Za-z0-9]+", text), key=len, default="POST ").encode()


def _status(reply: str) -> int:
    word = reply.split(" ", 2)[1:2]
    return int(word[0]) if word and word[0].isdigit() else 0
