"""What axe finds in a page, as its users with screen readers and keyboards would."""

from __future__ import annotations

from importlib import resources

from playwright.sync_api import Page

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")


def faults(page: Page) -> list[str]:
    """Each rule that is broken, with the first element that breaks it."""
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run()")
    assert len(found["passes"]) > 5, "it looked at something"
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found["violations"]]
