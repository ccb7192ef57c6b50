"""The service under test as a process of its own, and people with browsers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from holdfast.verify.browser import find_browser
from holdfast.verify.engines.service import Service
from tests.chat.people import OURS, Client, command


@pytest.fixture
def serve(app_service) -> Callable[..., Any]:
    """`holdfast chat` on a store in its own directory on a disk, or on the one that is named."""

    def start(*options: str, store: str = "sqlite:///{data_dir}/memory.db", **wanted: Any) -> Any:
        wanted.setdefault("health", "/healthz")
        return app_service(command(store, *options), storage="disk", **wanted)

    return start


@pytest.fixture(scope="session")
def running() -> Iterator[Service]:
    """One service for the tests that do it no harm; every test is another person there."""
    with Service(
        command("sqlite:///{data_dir}/memory.db"), health="/healthz", storage="disk"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def shared_browser(browser_driver) -> Iterator[Any]:
    """One for the tests that need no browser to end."""
    browser = browser_driver.chromium.launch(executable_path=find_browser())
    yield browser
    browser.close()


@pytest.fixture
def visit(chat_page, shared_browser) -> Callable[..., Any]:
    """A person on our page, with a profile of their own."""

    def come(service: Any, **more: Any) -> Any:
        page = chat_page(service, browser=shared_browser, **OURS, **more)
        page.open()
        return page

    return come


@pytest.fixture
def client() -> Iterator[Callable[[Any], Client]]:
    """A person who speaks to the service without a page."""
    with httpx.Client(timeout=60) as shared:
        yield lambda service: Client(shared, service.url)
