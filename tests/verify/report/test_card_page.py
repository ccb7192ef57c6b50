"""The durability card as people open it: a file, in a browser, offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from holdfast.model import Durability
from holdfast.verify.report import html
from holdfast.verify.result_card import Loss, Row, card_of
from tests import accessibility
from tests.verify.report.test_browser import CONTRAST, CONTRAST_MIN, SCHEMES, opened

ROWS = (
    Row("aof-always", "power", "DISK", "block", [Loss(500, 0), Loss(400, 0)]),
    Row("aof-everysec", "kill", "PROCESS", "", [Loss(1000, 0)]),
    Row("aof-everysec", "power", "PROCESS", "block", [Loss(600, 90, 812.4, 3), Loss(400, 10, 5.0)]),
    Row("<b>x</b>", "power", None, "block", [Loss(10, 10, 9.0, trouble="<script>owned</script>")]),
    Row("rdb-only", "power", "MEMORY", not_run="no root, and no strace"),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    about = {"holdfast": "0.1.0", "engine": {"redis": "7.0.15"}, "took_s": 4.2}
    card = card_of("redis", 6, Durability.DISK, ROWS, about, "holdfast check redis --all-configs")
    file = tmp_path_factory.mktemp("card") / "card.html"
    file.write_text(html.render(json.loads(json.dumps(card.to_json()))), "utf-8")
    return file


def test_each_configuration_is_shown_with_what_it_lost(browser: Browser, file: Path):
    with opened(browser, file) as (page, heard):
        expect(page.get_by_role("heading", level=1)).to_have_text("redis")
        expect(page.locator(".stamp")).to_contain_text("broken Some configurations lose")
        shown = [" ".join(text.split()) for text in page.locator("tbody tr").all_inner_texts()]
        wanted = [
            ["aof-always", "acks say DISK", "power cut", "kept", "none of 900, 2 times"],
            ["aof-everysec", "SIGKILL", "kept", "none of 1000, 1 times"],
            ["10 to 90 each time, 2 of 2 times; 3 half remembered", "812 ms", "broken"],
            ["<b>x</b>", "10 each time, 1 of 1 times", "<script>owned</script>"],
            ["rdb-only", "unknown", "not measured: no root, and no strace"],
        ]
        assert len(shown) == len(wanted)
        for text, parts in zip(shown, wanted, strict=True):
            assert [part for part in parts if part not in text] == []
        widths = page.locator(".bar-lost").evaluate_all(
            "all => all.map(r => r.getAttribute('width'))"
        )
        assert widths == ["0%", "0%", "10.0%", "100.0%"]
        assert page.locator("script, tbody b").count() == 0
        assert heard == [f"request {file.as_uri()}"]


def test_columns_are_explained_and_each_row_has_advice(browser: Browser, file: Path):
    with opened(browser, file, viewport={"width": 390, "height": 844}) as (page, _):
        explained = page.locator("#columns dt").all_inner_texts()
        assert explained == ["Configuration", "Fault", "Verdict", "Lost", "Window", "Advice"]
        advice = [" ".join(each.split()) for each in page.locator(".advice").all_inner_texts()]
        assert len(advice) == len(ROWS)
        assert advice[0] == "Nothing to change: no ack was lost."
        assert "Set appendfsync always" in advice[2]
        assert advice[4].startswith("Nothing is known of it")
        assert all(page.locator(".advice").nth(n).is_visible() for n in range(len(ROWS)))
        assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_can_be_read_in_light_and_dark_and_on_a_phone(browser: Browser, file: Path, scheme: str):
    narrow = {"width": 320, "height": 800}
    with opened(browser, file, color_scheme=scheme, viewport=narrow) as (page, _):
        poor = [one for one in page.evaluate(CONTRAST) if one["ratio"] < CONTRAST_MIN]
        assert not poor, poor[:5]
        assert accessibility.faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 320
