"""Times to live in a sample of keys: who expires, when, and who beside them never does. Pure."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.doctor.finding import Finding, Hazard, Opinion, Severity

SHORT_S: Final = 3600
"""A conversation that is gone after less than an hour is rarely meant so."""
SPREAD_MS: Final = 1000
SESSION_LIKE: Final = re.compile(
    r"chat|session|conversation|history|memor|thread|message|dialog", re.IGNORECASE
)
_KEY_PREFIX: Final = "hf:"
_SEPARATOR: Final = re.compile(r"[:/|]")
_WORD: Final = re.compile(r"[A-Za-z_-]{1,32}")
_STEM_KEYS: Final = 2
_STEM_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class Key:
    """A key and the milliseconds that it has left; -1 is for ever."""

    name: str
    left_ms: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys that a bounded SCAN met, without those of our own store."""

    keys: tuple[Key, ...]
    complete: bool
    """Whether these are all keys of the database."""


@dataclass(slots=True)
class Family:
    """Keys of one shape: `agents:session:…` stands for all of `agents:session:ID`."""

    shape: str
    expiring_ms: list[int] = field(default_factory=list)
    lasting: int = 0

    @property
    def is_session_like(self) -> bool:
        """Whether its name says that conversations are kept here."""
        return SESSION_LIKE.search(self.shape) is not None


def is_holdfast_key(name: str) -> bool:
    """Our own keys have heads for ever and logs with a time to live: that is meant so."""
    return name.startswith(_KEY_PREFIX)


def families(keys: Iterable[Key]) -> list[Family]:
    """Keys by their shape; the largest family first."""
    found: dict[str, Family] = {}
    for key in keys:
        shape = shape_of(key.name)
        family = found.setdefault(shape, Family(shape))
        if key.left_ms < 0:
            family.lasting += 1
        else:
            family.expiring_ms.append(key.left_ms)
    return sorted(found.values(), key=lambda one: -(len(one.expiring_ms) + one.lasting))


def shape_of(name: str) -> str:
    """A key without its ids: words that name its kind stay, and so does a first word."""
    first, *others = re.split(f"({_SEPARATOR.pattern})", name)
    if not others:
        return first
    kept = [
        part if at % 2 == 0 or (_WORD.fullmatch(part) and SESSION_LIKE.search(part)) else "…"
        for at, part in enumerate(others)
    ]
    return "".join([first if _WORD.fullmatch(first) else "…", *kept])


def facts(sample: Sample) -> dict[str, str]:
    """The distribution in words, of the largest families."""
    shown = {}
    for family in families(sample.keys)[:5]:
        words = f"{family.lasting} without a time to live"
        if family.expiring_ms:
            low, high = min(family.expiring_ms), max(family.expiring_ms)
            middle = statistics.median(family.expiring_ms)
            words += (
                f", {len(family.expiring_ms)} with: {_words(low)} to {_words(high)} left, "
                f"half of them under {_words(middle)}"
            )
        shown[f"keys {family.shape}"] = words
    return shown


def judge(sample: Sample | None) -> Opinion:
    """Findings about expiry; None: the keys could not be looked at."""
    if sample is None:
        return Opinion(unknown={Hazard.EXPIRY})
    found = Opinion()
    for family in families(sample.keys):
        if family.expiring_ms and family.lasting:
            found.findings.append(_mixed(family))
        if family.is_session_like and family.expiring_ms:
            middle = statistics.median(family.expiring_ms)
            if middle < SHORT_S * 1000:
                found.findings.append(_short(family, middle))
    found.findings += _by_message(sample.keys)
    if not any(key.left_ms >= 0 for key in sample.keys):
        found.absent.add(Hazard.EXPIRY)
    return found


def _mixed(family: Family) -> Finding:
    serious = family.is_session_like
    return Finding(
        Severity.WARNING if serious else Severity.NOTE,
        (Hazard.EXPIRY,) if serious else (),
        "one part of what belongs together, while the rest stays for ever",
        "of keys that are named alike, some have a time to live and some have none: usually a code "
        "path that writes without refreshing it",
        f"{family.shape}: {len(family.expiring_ms)} with a time to live, {family.lasting} without",
        "Set it in the same step as every write (SET … EX, or EXPIRE in one MULTI), or on none; "
        "holdfast refreshes it in the write itself",
    )


def _short(family: Family, middle_ms: float) -> Finding:
    return Finding(
        Severity.WARNING,
        (Hazard.EXPIRY,),
        f"half of these conversations within {_words(middle_ms)}",
        "their time to live is short for a memory, or is not refreshed when they are used",
        f"{family.shape}: {len(family.expiring_ms)} key(s), half with under {_words(middle_ms)} "
        "left",
        "Raise the time to live where they are written, and refresh it with every write",
    )


def _by_message(keys: Iterable[Key]) -> list[Finding]:
    """Messages as keys of their own: `chat:SESSION:MESSAGE`, each with a time of its own."""
    stems: dict[str, list[int]] = defaultdict(list)
    for key in keys:
        parts = _SEPARATOR.split(key.name)
        if len(parts) >= _STEM_PARTS and key.left_ms >= 0 and SESSION_LIKE.search(key.name):
            stems[key.name[: -len(parts[-1])]].append(key.left_ms)
    many = {stem: left for stem, left in stems.items() if len(left) >= _STEM_KEYS}
    uneven = [stem for stem, left in many.items() if max(left) - min(left) > SPREAD_MS]
    if len(many) < _STEM_KEYS or not uneven:
        return []
    return [
        Finding(
            Severity.WARNING,
            (Hazard.EXPIRY,),
            "the beginning of a conversation before its end",
            "messages of one session seem to be keys of their own, each with its own time to "
            "live: the oldest expire first, and half a session is left",
            f"{uneven[0]}… and {len(uneven) - 1} more have keys that expire at different times",
            "Keep a session under one key, or set one expiry on all its keys with every write",
        )
    ]


def _words(left_ms: float) -> str:
    seconds = left_ms / 1000
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
