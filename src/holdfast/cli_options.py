"""What several commands share: options, each with one meaning, and the help that names commands."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from holdfast import completion as offer
from holdfast import project_settings
from holdfast.errors import UsageError
from holdfast.secrets import SecretUrl

FILE: Final = click.Path(dir_okay=False, path_type=Path)
PORT: Final = click.IntRange(0, 65535)
EXISTING: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
LEVELS: Final = click.Choice(["MEMORY", "PROCESS", "DISK", "REPLICA"], case_sensitive=False)

_JSON: Final = "--json"
_STDOUT: Final = "-"
_JSON_STDOUT: Final = f"{_JSON}={_STDOUT}"


class _Age(click.ParamType):  # type: ignore[type-arg] # older releases of click have none
    """A time such as 90d, 12h, 30m or 45s."""

    name = "age"
    _UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """As a timedelta."""
        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(**{self._UNITS[value[-1:]]: float(value[:-1])})
        except (KeyError, ValueError, OverflowError):
            self.fail(f"{value!r} is no time: write 90d, 12h, 30m or 45s", param, ctx)


AGE: Final = _Age()


class PrintingCommand(click.Command):
    """A command that prints little: `--json` alone is `--json -`, so what follows is no file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A file is given as `--json=FILE`."""
        given: list[str] = []
        for word in args:
            if word == _STDOUT and given[-1:] == [_JSON_STDOUT]:
                continue  # `--json -`, as in the other commands
            given.append(_JSON_STDOUT if word == _JSON else word)
        return super().parse_args(ctx, given)


class ProjectCommand(click.Command):
    """A command whose defaults stand in the project's pyproject.toml."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read only now: other commands do not look for the file."""
        try:
            defaults = project_settings.read(Path.cwd())
        except UsageError as error:
            raise click.UsageError(str(error)) from error
        return super().make_context(*args, default_map=defaults, **more)


def several(ctx: click.Context, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """One set of options a check: every target of the project with every seed.

    A target or a seed on the command line is the only one.
    """
    checks = [asked]
    for name, plural in (("target", "targets"), ("seed", "seeds")):
        is_given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        values = None if is_given else (ctx.default_map or {}).get(plural)
        checks = [one | {name: value} for one in checks for value in values or [one[name]]]
    return checks


json_option = click.option(
    _JSON,
    "json_to",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write JSON to FILE; '-' is standard output, with nothing else on it.",
)
store_option = click.option(
    "--store",
    "url",
    type=SecretUrl,
    metavar="URL",
    envvar="HOLDFAST_STORE",
    default="sqlite:///memory.db",
    show_default=True,
    help="URL of the store.",
)
namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which application's sessions."
)
embedder_option = click.option("--embedder", help="minilm (default) or wordllama.")
index_option = click.option(
    "--index",
    type=SecretUrl,
    metavar="URL",
    help="chroma:///dir or chroma+http://host:port; otherwise in the engine.",
)
engine_option = click.option(
    "--engine", shell_complete=offer.engines, help="The engine that a function target(engine) gets."
)
