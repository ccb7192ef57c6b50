"""What axe finds in a page, as its users with screen readers and keyboards would."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")


def faults(page: Page) -> list[str]:
    """Each rule that is broken, with the first element that breaks it."""
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run()")
    assert len(found["passes"]) > 5, "it looked at something"
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found["violations"]]
