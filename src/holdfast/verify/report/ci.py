"""A check for CI: Markdown for a job's summary page, and JUnit XML. Made of its JSON alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree as ET

from holdfast.verify.report.causes import of_promise
from holdfast.verify.story import example_of

_COLOURS: Final = {"kept": "#12703f", "broken": "#b01f1a", "unknown": "#775000"}
_MARKS = {"kept": "✅", "broken": "❌", "unknown": "❔", "not claimed": "-"}


def markdown(result: Mapping[str, Any]) -> Iterator[str]:
    """The scorecard as a table, then why each broken promise is likely broken, line by line."""
    yield f"### holdfast: {_cell(result['target'])}: {result['verdict']}"
    yield ""
    yield "| promise | verdict | because |"
    yield "|---|---|---|"
    for promise, one in result["promises"].items():
        verdict = one["verdict"]
        yield f"| {promise} | {_MARKS[verdict]} {verdict} | {_cell(one['because'])} |"
    yield ""
    for promise, one in result["promises"].items():
        if one["verdict"] == "broken":
            says = of_promise(promise, one, result["environment"])
            if example := example_of(promise, one, result.get("smallest")):
                yield f"**{promise}**, for example: {_cell(example)}"
                yield ""
            yield f"**{promise}**: {_cell(says.cause)} *Change:* {_cell(says.change)}"
            yield ""
    again = _xml(" ".join(result["repeat"].split())).replace("`", "'")
    yield f"The same plan again: `{again}`"  # in a code span only its end counts
    yield ""


def junit(result: Mapping[str, Any]) -> str:
    """A test case for each promise: broken is a failure, unknown an error, not claimed skipped."""
    verdicts = [one["verdict"] for one in result["promises"].values()]
    suite = ET.Element(
        "testsuite",
        name=_xml(f"holdfast check {result['target']}"),
        tests=str(len(verdicts)),
        failures=str(verdicts.count("broken")),
        errors=str(verdicts.count("unknown")),
        skipped=str(verdicts.count("not claimed")),
        time=str(result["environment"].get("took_s", 0)),
    )
    for promise, one in result["promises"].items():
        case = ET.SubElement(suite, "testcase", classname="holdfast", name=promise)
        kind = {"broken": "failure", "unknown": "error", "not claimed": "skipped"}.get(
            one["verdict"]
        )
        if kind is not None:
            broken = one["verdict"] == "broken"
            example = example_of(promise, one, result.get("smallest")) if broken else ""
            words = [one["because"], example, f"The same plan again: {result['repeat']}"]
            text = _xml("\n".join(filter(None, words)))
            ET.SubElement(case, kind, message=_xml(one["because"])).text = text
    whole = ET.Element("testsuites")
    whole.append(suite)
    ET.indent(whole)
    return ET.tostring(whole, encoding="unicode", xml_declaration=True)


def _badge(result: Mapping[str, Any]) -> tuple[str, str]:
    """What a badge says, and its colour. Numbers and fixed words only."""
    verdict = result["verdict"]
    count = sum(one["verdict"] == verdict for one in result["promises"].values())
    words = f"{count} promise{'' if count == 1 else 's'} {verdict}"
    return (words if count else "unknown"), _COLOURS[verdict]


def badge_json(result: Mapping[str, Any]) -> str:
    """The JSON of an endpoint, as shields.io reads it."""
    words, colour = _badge(result)
    return json.dumps({"schemaVersion": 1, "label": "holdfast", "message": words, "color": colour})


def badge_svg(result: Mapping[str, Any]) -> str:
    """The picture itself: nothing is asked for."""
    words, colour = _badge(result)
    left, right = 62, 14 + 7 * len(words)
    said = (
        f'<text x="{left / 2:g}" y="14">holdfast</text>'
        f'<text x="{left + right / 2:g}" y="14">{words}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="holdfast: {words}"><title>holdfast: {words}</title>'
        f'<rect width="{left + right}" height="20" rx="3" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" '
        f'font-size="11">{said}</g></svg>'
    )


BADGES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    ".svg": badge_svg,
    ".json": badge_json,
}


def _cell(text: str) -> str:
    """Text of a store or a user inside Markdown: no markup, no new cell, one line."""
    escaped = "".join(f"\\{char}" if char in "\\`*_[]<>|#!~" else char for char in text)
    return " ".join(_xml(escaped).split())


def _xml(text: str) -> str:
    """What XML 1.0 can hold: other characters as their escapes."""
    return "".join(
        char if char in "\t\n" or (char.isprintable() and char < "\ufffe") else repr(char)[1:-1]
        for char in text
    )
