"""Buttons that end things: each proves that it landed, and the page counts what survived."""

from __future__ import annotations

import re
import sys

import pytest

from tests.chat.people import OURS, wait_for_answer

COMMAND = [sys.executable, "-c", "from holdfast.cli import main; main()", "chat"]


@pytest.fixture
def page(app_service, chat_page, shared_browser):
    service = app_service(
        [*COMMAND, "--chaos", "redis", "--port", "{port}", "--embedder", "wordllama"], health=None
    )
    page = chat_page(service, **OURS, browser=shared_browser)
    page.open()
    return page


def test_what_was_saved_survives_every_button(page):
    page.send("I am still here")
    wait_for_answer(page)  # five records: the message, its memory, three of the answer
    page.page.locator("#faults [data-fault=clock]").wait_for()
    for count, (fault, seen) in enumerate(
        (
            ("kill-service", "SIGKILL"),
            ("power", "disk"),
            ("pause-service", "in state T"),
            ("pause-engine", "in state T"),
        ),
        start=1,
    ):
        page.page.locator(f"#faults [data-fault={fault}]").click()
        page.page.locator("#landed li:not(.under-way)").nth(count - 1).wait_for()
        told = page.page.locator("#landed li").first
        assert re.search(
            rf"{seen}.*5 records were saved before, all of them are here", told.inner_text()
        ), told.inner_text()
    assert page.has("I am still here")
    page.page.set_viewport_size({"width": 1280, "height": 800})
    boxes = "id => document.getElementById(id).getBoundingClientRect().height"
    assert page.page.evaluate(boxes, "memories") >= 180, "the log leaves no room for memories"
    assert page.page.evaluate(boxes, "landed") <= 120
