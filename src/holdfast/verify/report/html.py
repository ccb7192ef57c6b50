"""A result as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.verify.report import card_view, view

_FOLDER = Path(__file__).parent / "templates"


def render(result: Mapping[str, Any]) -> str:
    """The page for a result, given as the JSON of `--json`. Everything in it stays text.

    A result of `--all-configs` is a durability card, and has rows instead of promises.
    """
    name, page = (
        ("card.html.j2", card_view.page(result))
        if "rows" in result
        else ("page.html.j2", view.page(result))
    )
    return str(_environment().get_template(name).render(page))


def ensure_ready() -> None:
    """`UsageError` with what to install, before a check that would end without its report."""
    _environment()


def _environment() -> Any:
    try:
        import jinja2  # noqa: PLC0415 - an extra, needed only for a report
    except ImportError as error:
        raise UsageError(
            "--report needs a template engine: pip install 'holdfast[verify]'"
        ) from error
    # Ids and contents come from stores and users: nothing reaches the page unescaped.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
