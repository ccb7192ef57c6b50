"""Facts of a result in words with their units, never as a Python value. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

LISTED_MAX: Final = 3
"""So many texts of a list are named; more are counted."""
_UNITS: Final = {"_s": "s", "_ms": "ms", "_ns": "ns", "_bytes": "bytes", "_percent": "%"}
_KIB: Final = 1024


def in_words(facts: Mapping[str, Any]) -> str:
    """`3 cuts, 120 KiB unsynced, level DISK`. What is zero or empty says nothing."""
    return ", ".join(
        _fact(name, value) for name, value in facts.items() if value not in (0, [], {}, None, "")
    )


def _fact(name: str, value: Any) -> str:
    words, unit = _unit(name)
    if isinstance(value, Mapping):
        return f"{words}: {in_words(value)}"
    if isinstance(value, list):
        named = len(value) <= LISTED_MAX and all(isinstance(one, str) for one in value)
        return f"{words} {', '.join(value)}" if named else f"{len(value)} {words}"
    if isinstance(value, bool | str) or value is None:
        return f"{words} {_plain(value)}"
    if unit == "bytes":
        return f"{size(value)} {words}"
    return f"{words} {value} {unit}" if unit else f"{value} {words}"


def _unit(name: str) -> tuple[str, str]:
    """A name without its unit, and the unit."""
    ending = next((end for end in _UNITS if name.endswith(end) and name != end), "")
    return name.removesuffix(ending).replace("_", " "), _UNITS.get(ending, "")


def size(count: float) -> str:
    """Bytes in the unit that a person would choose."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < _KIB:
            return f"{count:.3g} {unit}" if unit != "bytes" else f"{count} {unit}"
        count /= _KIB
    return f"{count:.3g} GiB"


def flat(value: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as lines: engine kind, engine version, …"""
    for name, item in value.items():
        words, unit = _unit(str(name))
        label = f"{before} {words}".strip()
        if isinstance(item, Mapping):
            yield from flat(item, label)
        elif item is not None:
            yield label, f"{_plain(item)} {unit}".strip()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return in_words(value)
    if isinstance(value, list | tuple):
        return ", ".join(_plain(one) for one in value) or "(none)"
    return str(value) or "(empty)"
