"""What the site needs beside mkdocs.yml: fences that tests do not run, and the command's own help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

_NOT_RUN = "```python no-run\n"
_COMMANDS = "<!-- every command -->"
_WIDTH = 96


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The words behind a fence are for tests/test_docs.py; the renderer would not know them."""
    shown = markdown.replace(_NOT_RUN, "```python\n")
    if _COMMANDS not in shown:
        return shown
    from holdfast.cli import main  # noqa: PLC0415 - one page needs it

    return shown.replace(_COMMANDS, "\n".join(_sections(main, None, "holdfast")))


def _sections(command: click.Command, above: click.Context | None, name: str) -> Iterator[str]:
    """One heading a command with what `--help` prints, and then those inside of it."""
    here = click.Context(command, info_name=name, parent=above, terminal_width=_WIDTH)
    yield f"## {here.command_path}\n\n```text\n{command.get_help(here)}\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(here):
            yield from _sections(command.commands[inner], here, inner)
