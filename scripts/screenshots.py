"""Writes the pictures of the chat page and of a report to docs/images: `make screenshots`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Message
from holdfast.chat.people import Person, new_token
from holdfast.verify.browser import find_browser, start_playwright
from holdfast.verify.engines.service import Service

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()", "chat"]
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TOLD = (
    (3, "plans", "My name is Xiao Li and I am allergic to peanuts."),
    (2, "travels", "My flight to Porto is on Friday at 7."),
    (2, "travels", "My sister lives near the river in Porto."),
)


def fill(url: str, token: str) -> None:
    """What the person told on earlier days."""
    from holdfast.chat.noticing import memories_in  # noqa: PLC0415 - beside its only use

    person = Person.of(token)
    with holdfast.connect(url, namespace="chat") as store:
        for days, name, text in TOLD:
            at = datetime.now(UTC) - timedelta(days=days)
            conversation = f"{name}-conversation"
            said = Message("user", text, created_at=at)
            ack = store.append(person.session(conversation), said)
            made = {"from": {"conversation": conversation, "seq": ack.first}}
            store.append(
                person.memory,
                [Message("memory", one, created_at=at, extra=made) for one in memories_in(text)],
            )


@contextmanager
def served(*options: str, **more: Any) -> Iterator[Service]:
    """The service, until the pictures are taken."""
    command = [*COMMAND, "--port", "{port}", *options]
    with Service(command, storage="disk", **more) as service:
        yield service


class Camera:
    """A browser that knows one person."""

    def __init__(self, driver: Any, url: str, token: str) -> None:
        self._driver, self._url, self._token = driver, url, token

    @contextmanager
    def page(self, scheme: str, size: dict[str, int]) -> Iterator[Any]:
        """The page in that look and size."""
        browser = self._driver.chromium.launch(executable_path=find_browser())
        context = browser.new_context(color_scheme=scheme, viewport=size, locale="en-GB")
        cookie = {"name": "holdfast_person", "value": self._token, "url": self._url}
        context.add_cookies([cookie])
        page = context.new_page()
        page.goto(self._url)
        page.locator("#pill[data-state=up]").wait_for()
        yield page
        browser.close()


def say(page: Any, text: str) -> None:
    """Send, and wait for the whole answer."""
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")
    page.locator(".message.user").last.locator("[data-state=disk]").wait_for()
    page.locator(".message").last.locator(".bubble:not(:empty)").wait_for()
    page.wait_for_load_state("networkidle")


def shoot(page: Any, name: str) -> None:
    """One picture."""
    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


def conversation(driver: Any) -> None:
    """The page in use, in both looks and on a telephone, and while its service is away."""
    token = new_token()
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        url = f"sqlite:///{folder}/memory.db"
        fill(url, token)
        with served("--store", url, health="/readyz") as service:
            camera = Camera(driver, service.url, token)
            with camera.page("light", WIDE) as page:
                say(page, "What should I not eat?")
                say(page, "Where does my sister live?")
                page.locator(".looked summary").last.click()
                shoot(page, "chat-light")
                opened = page.url
                service.kill()
                page.locator("#text").fill("Please book a table for two on Saturday.")
                page.locator("#text").press("Enter")
                page.locator("[data-state=held]").wait_for()
                shoot(page, "chat-away")
                service.start()
            for name, scheme, size in (("dark", "dark", WIDE), ("phone", "light", PHONE)):
                with camera.page(scheme, size) as page:
                    page.goto(opened)
                    page.locator(".message.assistant").last.wait_for()
                    page.wait_for_load_state("networkidle")
                    shoot(page, f"chat-{name}")
                    if name == "phone":
                        page.locator("#open-memory").click()
                        page.locator("#memories .said").first.wait_for()
                        page.wait_for_timeout(400)  # the panel slides in
                        shoot(page, "chat-phone-memory")


def chaos(driver: Any) -> None:
    """The buttons, after two of them were pressed."""
    with served("--chaos", "redis", health=None) as service:
        camera = Camera(driver, service.url, new_token())
        with camera.page("dark", WIDE) as page:
            say(page, "My name is Xiao Li and I am allergic to peanuts.")
            for fault in ("kill-engine", "kill-service"):
                page.locator(f"[data-fault={fault}]").click()
                page.locator("#landed li.under-way").wait_for()
                page.locator("#landed li.under-way").wait_for(state="detached")
            say(page, "What should I not eat?")
            shoot(page, "chat-chaos")


def report(driver: Any) -> None:
    """The head of two reports: ours, and a policy that every kill spares and no power cut does."""
    scorecard(driver, "report-kept", "sqlite")
    scorecard(driver, "report-broken", "redis", "--config", "aof-everysec")


def scorecard(driver: Any, name: str, *target: str) -> None:
    """The head of the report of one check."""
    words = ["check", *target, "--seed", "6"]
    with tempfile.TemporaryDirectory() as folder:
        page_file = Path(folder) / "report.html"
        subprocess.run(  # noqa: S603 - our own command
            [*COMMAND[:-1], *words, "--report", str(page_file)],
            check=False,  # exit 1 where it is broken
            stdout=subprocess.DEVNULL,
        )
        browser = driver.chromium.launch(executable_path=find_browser())
        page = browser.new_page(color_scheme="light", viewport={"width": 1100, "height": 700})
        page.goto(page_file.as_uri())
        shoot(page, name)
        browser.close()


def main() -> None:
    """Take every picture, or those that are named: conversation, chaos, report."""
    IMAGES.mkdir(exist_ok=True)
    driver = start_playwright()
    pictures = {"conversation": conversation, "chaos": chaos, "report": report}
    try:
        for name in sys.argv[1:] or pictures:
            pictures[name](driver)
    finally:
        driver.stop()


if __name__ == "__main__":
    main()
