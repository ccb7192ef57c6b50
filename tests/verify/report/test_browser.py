"""The report of a real, broken check, as people open it: a file, in a browser, offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.report import html
from tests import accessibility
from tests.verify.check.checking import Notes
from tests.verify.report.results import everything
from tests.verify.report.stores import IMAGE, SCRIPT

CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")
CONTRAST_MIN = 4.5
SCHEMES = ("light", "dark")
PICTURES = Path(__file__).parents[3] / ".cache" / "pictures"
"""CI keeps them, so that a change of the page can be looked at."""


@contextmanager
def opened(browser: Browser, file: Path, **wanted: Any) -> Iterator[tuple[Page, list[str]]]:
    """The page with what it asked for and complained about."""
    with browser.new_context(offline=True, **wanted) as context:
        page = context.new_page()
        heard: list[str] = []
        page.on("request", lambda request: heard.append(f"request {request.url}"))
        page.on("console", lambda message: heard.append(f"console {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error {error}"))
        page.goto(file.as_uri())
        yield page, heard


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything in it."""
    return written(everything(), tmp_path_factory.mktemp("report"))


def written(result: dict[str, Any], folder: Path) -> Path:
    file = folder / "report.html"
    file.write_text(html.render(result), "utf-8")
    return file


def checked() -> dict[str, Any]:
    """Redis with snapshots only, killed under load: what was acknowledged is gone."""
    options = CheckOptions(
        target="tests.verify.report.stores:hostile",
        engine="redis",
        config="rdb-only",
        seed=7,
        promises=("durable",),
        faults=("kill",),
        time_s=15,
    )
    # As a file of --json would hold it.
    result: dict[str, Any] = json.loads(json.dumps(check(options, Notes()).to_json()))
    return result


def test_the_report_of_a_broken_store_shows_what_happened_and_stays_text(
    browser: Browser, tmp_path: Path
):
    broken = checked()
    page_file = written(broken, tmp_path)
    [anomaly, *_] = broken["promises"]["durable"]["anomalies"]
    with opened(browser, page_file) as (page, heard):
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Hostile {IMAGE}")
        expect(page.get_by_text(anomaly["because"], exact=True).first).to_be_visible()
        expect(page.locator("#first")).to_contain_text("Snapshots only (appendonly no)")
        article = page.locator(".anomaly").first
        drawing = article.get_by_role("img", name="Timeline of")
        clients = {str(operation["process"]) for operation in anomaly["operations"]}
        assert clients <= set(drawing.locator(".lane-name").all_text_contents())
        expect(drawing.locator(".fault text").first).to_have_text("⚡kill")
        struck = drawing.locator(".note.missing").first
        expect(struck).to_have_text(anomaly["message"])
        expect(struck).to_have_css("text-decoration-line", "line-through")
        told = article.locator(".said.missing").filter(has_text=anomaly["message"])
        expect(told.locator("del")).to_have_css("text-decoration-line", "line-through")
        expect(article.get_by_text("Snapshots only (appendonly no)")).to_be_visible()
        expect(page.locator("#repeat code")).to_have_text(broken["repeat"])
        expect(page.locator(".talk").get_by_text(SCRIPT).first).to_be_visible()
        assert page.locator("script, .talk img, h1 img").count() == 0
        assert page.title() != "owned"
        assert "{{ 7*7 }} \\ud83d" in page.locator(".talk").first.inner_text()
        assert heard == [f"request {page_file.as_uri()}"]


def hostile() -> dict[str, Any]:
    """Every text on the first screen as long as it may be, and a drawing of many operations."""
    result = everything()
    result["target"] = result["repeat"] = "<b>target</b> " * 200
    [root] = result["promises"]["durable"]["anomalies"]
    operations = [
        one | {"process": f"<i>{n}</i>", "messages": ["m" * 90] * 40}
        for n in range(20)
        for one in root["operations"]
    ]
    wide = root | {"because": "<u>because</u> " * 200, "operations": operations}
    result["promises"] = {"durable": result["promises"]["durable"] | {"anomalies": [wide]}}
    return result


@pytest.mark.parametrize("made", [everything, hostile])
def test_the_first_screen_has_verdict_cause_fix_example_and_command(
    browser: Browser, tmp_path: Path, made: Any
):
    file = written(made(), tmp_path)
    with opened(browser, file, viewport={"width": 1280, "height": 900}) as (page, _):
        first = page.locator("#first")
        for part in (
            page.locator(".stamp"),
            first.locator(".sentence"),
            first.locator(".remedy dd").nth(0),
            first.locator(".change dd"),
            first.locator(".story"),
            first.locator(".pan"),
            first.locator(".again code").nth(0),
            first.locator(".again code").nth(1),
        ):
            expect(part).to_be_visible()
            box = part.bounding_box()
            assert box is not None
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= 900, (part, box)
        assert first.locator("i, u").count() == 0


def test_a_drawing_zooms_and_filters_without_a_script(browser: Browser, page_file: Path):
    with opened(browser, page_file) as (page, heard):
        figure = page.locator(".anomaly .figure").first
        drawing = figure.get_by_role("img")
        once = drawing.bounding_box()
        figure.get_by_label("4×").check()
        wide = drawing.bounding_box()
        assert once is not None
        assert wide is not None
        assert wide["width"] == pytest.approx(4 * once["width"], abs=2)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        figure.locator(".pan").focus()
        page.keyboard.press("End")
        for name, drawn in (("append", ".op.append"), ("read", ".op.history"), ("fault", ".fault")):
            assert drawing.locator(drawn).first.is_visible()
            figure.get_by_label(name, exact=True).uncheck()
            assert not drawing.locator(drawn).first.is_visible()
            figure.get_by_label(name, exact=True).check()
            assert drawing.locator(drawn).first.is_visible()
        figure.get_by_label("others at the same time").uncheck()
        assert not drawing.locator(".op.nearby").first.is_visible()
        assert drawing.locator(".op.append:not(.nearby)").first.is_visible()
        unnamed = page.locator("input, .pan, summary").evaluate_all(
            "all => all.filter(e => !(e.closest('label')?.textContent || e.ariaLabel ||"
            " e.textContent).trim()).length"
        )
        assert unnamed == 0
        assert heard == [f"request {page_file.as_uri()}"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [390, 1280])
def test_pictures_of_the_report_for_who_reviews_it(
    browser: Browser, page_file: Path, scheme: str, width: int
):
    size = {"width": width, "height": 900}
    with opened(browser, page_file, color_scheme=scheme, viewport=size) as (page, _):
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"report-{width}-{scheme}.png"
        page.screenshot(path=file, animations="disabled")
        assert file.stat().st_size > 20_000  # a blank page has 5,000
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_word_can_be_read_in_light_and_dark(browser: Browser, page_file: Path, scheme: str):
    with opened(browser, page_file, color_scheme=scheme) as (page, _):
        measured = page.evaluate(CONTRAST)
        poor = [one for one in measured if one["ratio"] < CONTRAST_MIN]
        assert not poor, poor[:5]
        assert accessibility.faults(page) == []
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 22)"
        assert dark == (scheme == "dark")
    assert len(measured) > 100


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, page_file: Path, width: int):
    with opened(browser, page_file, viewport={"width": width, "height": 800}) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        beyond = page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.getClientRects().length &&"
            " getComputedStyle(e).position !== 'absolute' && !e.closest('thead') &&"
            f" e.getBoundingClientRect().right > {width} + 1).map(e => e.outerHTML.slice(0, 120))"
        )
        assert beyond == []


def test_headings_tables_and_drawings_are_named(browser: Browser, page_file: Path):
    with opened(browser, page_file) as (page, _):
        levels = page.locator("h1, h2, h3, h4, h5").evaluate_all(
            "all => all.map(h => +h.tagName[1])"
        )
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        names = page.get_by_role("img").evaluate_all(
            "all => all.map(i => i.querySelector('title').textContent)"
        )
        assert names
        assert all(names)
        expect(page.get_by_role("columnheader", name="Verdict")).to_be_visible()
        expect(page.get_by_role("rowheader", name="durable")).to_be_visible()
        ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
        assert len(ids) == len(set(ids))
        links = page.locator("a[href^='#']").evaluate_all("all => all.map(a => a.hash.slice(1))")
        assert set(links) <= set(ids)
