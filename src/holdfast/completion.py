"""What a shell offers after TAB: names that the kit knows. The kit loads when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import click
from click.shell_completion import CompletionItem

Offer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Our stores, and those of frameworks."""
    from holdfast.verify.adapters.frameworks import FRAMEWORKS  # noqa: PLC0415 - see above
    from holdfast.verify.spec import HOLDFAST_TARGETS  # noqa: PLC0415

    del ctx, param
    theirs = (f"{name}:{kind}" for name, one in FRAMEWORKS.items() for kind in one.engines)
    return _begun((*HOLDFAST_TARGETS, *theirs), incomplete)


def engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Kinds of engines."""
    from holdfast.verify.engines.configs import CONFIGS  # noqa: PLC0415 - see above

    del ctx, param
    return _begun(CONFIGS, incomplete)


def configs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Configurations of the engine that was named before; of all, where none was."""
    from holdfast.verify.engines.configs import CONFIGS  # noqa: PLC0415 - see above

    del param
    # While a line is typed, click leaves the target among what it could not place yet.
    typed = [str(ctx.params.get("engine")), *(w for a in ctx.args for w in a.split(":"))]
    kinds = [kind for kind in typed if kind in CONFIGS] or list(CONFIGS)
    return _begun(dict.fromkeys(name for kind in kinds for name in CONFIGS[kind]), incomplete)


def topologies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Topologies of any engine."""
    from holdfast.verify.engines.topologies import NAMES  # noqa: PLC0415 - see above

    del ctx, param
    return _begun(NAMES, incomplete)


def faults(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Faults, as `--faults` takes them."""
    from holdfast.verify.check_options import FAULTS  # noqa: PLC0415 - see above

    del ctx, param
    return _begun((*FAULTS, "none", "all"), incomplete)


def promises(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Promises, by their ids."""
    from holdfast.verify.promises import PROMISES  # noqa: PLC0415 - see above

    del ctx, param
    return _begun(PROMISES, incomplete)


def providers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Who can supply an engine."""
    from holdfast.verify.engines.providers import PROVIDERS  # noqa: PLC0415 - see above

    del ctx, param
    return _begun(PROVIDERS, incomplete)


def scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Scenarios of a check."""
    from holdfast.verify.scenarios import SCENARIOS  # noqa: PLC0415 - see above

    del ctx, param
    return _begun((scenario.name for scenario in SCENARIOS), incomplete)


def operations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What a client of a small plan may do."""
    from holdfast.verify.workload.plan import OPERATIONS  # noqa: PLC0415 - see above

    del ctx, param
    return _begun(OPERATIONS, incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


class Names(click.ParamType):  # type: ignore[type-arg]  # click 8.2 takes none
    """Names with commas between; TAB offers the next, and none that stands there already."""

    name = "names"

    def __init__(self, offered: Offer) -> None:
        self.offered = offered

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names, whether or not they are known: the command that gets them says so."""
        del param, ctx
        return tuple(name.strip() for name in value.split(","))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What was typed up to the last comma, with every name that fits after it."""
        before, comma, last = incomplete.rpartition(",")
        fitting = self.offered(ctx, param, last)
        return [CompletionItem(before + comma + n) for n in fitting if n not in before.split(",")]
