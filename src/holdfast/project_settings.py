"""`[tool.holdfast]` of pyproject.toml: options of `holdfast check` that a project always wants."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UsageError, did_you_mean

FILE: Final = "pyproject.toml"
OPTIONS: Final[dict[str, type | tuple[type, ...]]] = {
    "target": str,
    "targets": list,
    "engine": str,
    "engine-version": str,
    "config": str,
    "time": (int, float),
    "shrink": (int, float),
    "seed": int,
    "seeds": list,
    "require": str,
    "faults": list,
    "promises": list,
    "not-claimed": list,
}
"""What may stand there, and of which type: the names are those of the options."""
SEVERAL: Final[dict[str, type]] = {"targets": str, "seeds": int}
"""Lists that make several checks, one after another, and what is in them."""
_PARAMETERS: Final = {
    "time": "time_s",
    "shrink": "shrink_s",
    "engine-version": "engine_version",
    "not-claimed": "not_claimed",
}


def read(folder: Path) -> dict[str, Any]:
    """The options of the nearest pyproject.toml, by the names of parameters; none without one.

    `UsageError` where it cannot be read, or has a name or a type that no option has.
    """
    found = next((at / FILE for at in (folder, *folder.parents) if (at / FILE).is_file()), None)
    if found is None:
        return {}
    try:
        table = tomllib.loads(found.read_text("utf-8")).get("tool", {}).get("holdfast", {})
    except (OSError, ValueError) as error:  # TOML and UTF-8 that are none are ValueErrors
        raise UsageError(f"{found} cannot be read: {error}") from error
    return {_PARAMETERS.get(name, name): _option(found, name, table[name]) for name in table}


def _option(file: Path, name: str, value: Any) -> Any:
    kind = OPTIONS.get(name)
    if kind is None:
        raise UsageError(
            f"{file}: [tool.holdfast] has no {name!r}{did_you_mean(name, OPTIONS)}; "
            f"it has: {', '.join(OPTIONS)}"
        )
    each = SEVERAL.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) or not _are(each, value):
        raise UsageError(f"{file}: [tool.holdfast] {name} = {value!r} is not what {name} takes")
    if each is not None:
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _are(each: type | None, values: Any) -> bool:
    return each is None or (bool(values) and all(type(one) is each for one in values))
