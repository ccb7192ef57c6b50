"""A real browser that has no network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    assert found, f"no browser on PATH (looked for {', '.join(BROWSERS)}): run scripts/setup"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found[0])
        yield browser
        browser.close()
