"""A real browser that has no network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from holdfast.verify.browser import find_browser


@pytest.fixture(scope="module")
def browser(browser_driver: Playwright) -> Iterator[Browser]:
    browser = browser_driver.chromium.launch(executable_path=find_browser())
    yield browser
    browser.close()
