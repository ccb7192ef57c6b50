"""What the page of a durability card shows, made from its JSON alone. Pure: nothing is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.verify.report import causes
from holdfast.verify.report.card_terminal import CLOSING, FAULTS, TROUBLE_CHARS_MAX, span
from holdfast.verify.report.evidence import flat
from holdfast.verify.report.view import legible

WIDTH_MIN: Final = 0.5
"""Of a bar, in percent: whatever was lost shows."""


def page(card: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the template needs."""
    info = legible(card)
    environment = info["environment"]
    rows = info["rows"]
    return {
        "target": info["target"],
        "verdict": info["verdict"],
        "headline": CLOSING[info["verdict"]],
        "where": ", ".join(f"{kind} {v}" for kind, v in environment["engine"].items()),
        "require": info["require"],
        "seed": info["seed"],
        "repeat": info["repeat"],
        "acknowledged": sum(row["acknowledged"] for row in rows),
        "lost": sum(row["lost"] for row in rows),
        "landed": sum(len(row["losses"]) for row in rows),
        "mechanisms": ", ".join(dict.fromkeys(r["mechanism"] for r in rows if r["mechanism"])),
        "rows": [_row(row) | {"advice": _advice(row, environment)} for row in rows],
        "environment": list(flat(environment)),
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    share = 100 * row["lost"] / row["acknowledged"] if row["acknowledged"] else 0.0
    return {
        "config": row["config"],
        "level": row["level"],
        "fault": FAULTS[row["fault"]],
        "verdict": row["verdict"],
        "not_run": row["not_run"],
        "percent": f"{share:.1f}",
        "width": max(share, WIDTH_MIN) if row["lost"] else 0,
        "words": _words(row),
        "trouble": next((one["trouble"] for one in row["losses"] if one["trouble"]), "")[
            :TROUBLE_CHARS_MAX
        ],
        "window": f"{row['window_ms']:.0f} ms" if row["lost"] else "",
    }


def _advice(row: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """What to change so that this row loses nothing."""
    if row["not_run"] or not row["acknowledged"]:
        return "Nothing is known of it: run it again where the fault can be caused."
    if not row["lost"]:
        return "Nothing to change: no ack was lost."
    engine = {"kind": next(iter(environment["engine"]), ""), "config": row["config"]}
    lost = {"name": "lost", "faults": [{"name": row["fault"]}]}
    change = causes.likely("durable", {"engine": engine}, lost).change
    optional = "Only if such an ack has to survive: " if row["verdict"] == "not claimed" else ""
    return optional + change


def _words(row: Mapping[str, Any]) -> str:
    """How much was lost, how often, and whether a session was left in half."""
    losses = row["losses"]
    if not row["lost"]:
        return f"none of {row['acknowledged']}, {len(losses)} times"
    halved = sum(one["halved"] for one in losses)
    half = f"; {halved} half remembered" if halved else ""
    return f"{span(row)} each time, {row['losing']} of {len(losses)} times{half}"
