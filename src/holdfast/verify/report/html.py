"""A result as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.verify.report import view

_FOLDER = Path(__file__).parent / "templates"


def render(result: Mapping[str, Any]) -> str:
    """The page for a result, given as the JSON of `--json`. Everything in it stays text."""
    environment = _environment()
    return str(environment.get_template("page.html.j2").render(view.page(result)))


def ensure_ready() -> None:
    """`UsageError` with what to install, before a check that would end without its report."""
    _environment()


def _environment() -> Any:
    try:
        import jinja2  # noqa: PLC0415 - an extra, needed by whoever asks for a report
    except ImportError as error:
        raise UsageError(
            "--report needs a template engine: pip install 'holdfast[verify]'"
        ) from error
    # Ids and contents come from stores and strangers: nothing reaches the page unescaped.
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
