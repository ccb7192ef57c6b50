"""What the page shows, from the JSON of a result: chosen, counted and put into order. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.verify.promises import BY_ID
from holdfast.verify.report import causes, timeline
from holdfast.verify.report.check_terminal import CLOSING, closing_of
from holdfast.verify.report.evidence import flat, in_words
from holdfast.verify.result import ANOMALIES_MAX, LASTING
from holdfast.verify.story import named

SHOWN_MAX: Final = 2
"""So many anomalies of one promise are told in full; the rest are counted."""
SEEN_MAX: Final = 4
ECHOES_MAX: Final = 5
OPERATIONS_MAX: Final = 24
"""So many operations of a witness are drawn."""
TEXT_CHARS_MAX: Final = 1000
"""A store may answer with anything; a page shows no more of one text than this."""
_COUNTS: Final[Mapping[str, str]] = {
    "acknowledged": "appends acknowledged",
    "read_back": "of them read back",
    "never_read": "never read",
    "lost": "messages lost",
    "reads": "reads",
    "forgets": "forgets",
    "failed": "refused by an error",
    "unknown": "of unknown outcome",
    "undecided": "reads undecidable",
    "sessions": "sessions",
    "operations": "operations",
}
_SAID_OF: Final = {name: _COUNTS[name] for name in ("unknown", "failed")}
"""Counts of a scenario that need more words than their name."""
_SECRET: Final = re.compile(r"(?<=:)[^\s/@:]+(?=@)|(?<=[?&]password=)[^\s&]+")
"""A password inside a URL. A report is made to be shown around."""
_COVERAGE: Final = ("acknowledged", "read_back", "never_read", "undecided")


def legible(value: Any) -> Any:
    """The same JSON, fit to be shown: every text printable, bounded, and without a password.

    Printable: no control code, direction override or half character.
    """
    if isinstance(value, str):
        value = _SECRET.sub("…", value)
        whole = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value[:TEXT_CHARS_MAX])
        cut = len(value) - TEXT_CHARS_MAX
        return f"{whole}… (and {cut} characters more)" if cut > 0 else whole
    if isinstance(value, Mapping):
        return {legible(name): legible(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [legible(item) for item in value]
    return value


def page(result: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the template needs."""
    info = legible(_bounded(result))
    rows = [_row(name, one) for name, one in info["promises"].items()]
    return {
        "target": info["target"],
        "verdict": info["verdict"],
        "headline": _headline(info, rows),
        "where": _where(info["environment"]),
        "seed": info["seed"],
        "repeat": info.get("repeat", ""),
        "rows": rows,
        "first": _first(info),
        "findings": list(_findings(info)),
        "unknown": _unknown(rows),
        "coverage": _coverage(info["counts"]),
        "counts": _counts(info["counts"]),
        "lost": info["counts"].get("lost", 0),
        "faults": [_fault(name, tally) for name, tally in info["faults"].items()],
        "environment": list(flat(info["environment"])),
        "took_s": info["environment"].get("took_s"),
        "date": info["environment"].get("date"),
    }


def _bounded(result: Mapping[str, Any]) -> dict[str, Any]:
    """No more findings and operations than a check writes down: a file may come from anybody."""

    def cut(anomaly: Mapping[str, Any]) -> dict[str, Any]:
        return {**anomaly, "operations": (anomaly.get("operations") or [])[:OPERATIONS_MAX]}

    promises = {
        name: {**one, "anomalies": [cut(each) for each in one["anomalies"][:ANOMALIES_MAX]]}
        for name, one in result["promises"].items()
    }
    less = result.get("smallest")
    if less and less.get("anomaly"):
        less = {**less, "anomaly": cut(less["anomaly"])}
    return {**result, "promises": promises, "smallest": less}


def _headline(info: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    verdict = info["verdict"]
    count = Counter(row["verdict"] for row in rows)
    claimed = len(rows) - count["not claimed"]
    if verdict == "broken":
        return f"It broke {count['broken']} of {claimed} promises."
    if verdict == "unknown" and count["kept"]:
        return f"{CLOSING['unknown']} {count['kept']} of {claimed} promises were seen kept."
    return closing_of(info)


def _where(environment: Mapping[str, Any]) -> str:
    engine = environment.get("engine")
    if not engine:
        return "on an engine of its own"
    return f"on {engine['kind']} {engine.get('version') or ''} ({engine.get('config')})"


def _row(name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    scenarios = one["evidence"].get("scenarios", {})
    worst_first = sorted(scenarios.items(), key=lambda item: _rank(item[1].get("verdict")))
    evidence = [_evidence(*item) for item in worst_first]
    return {
        "id": name,
        "meaning": BY_ID[name].sentence if name in BY_ID else "",
        "verdict": one["verdict"],
        "because": one["because"],
        "evidence": evidence,
        "tally": _tally(evidence),
    }


def _rank(verdict: str | None) -> int:
    order = ("broken", "unknown", "kept")
    return order.index(verdict) if verdict in order else len(order)


def _unknown(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Why something could not be known, and of which promises that is said."""
    why: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"] == "unknown":
            why.setdefault(row["because"], []).append(row["id"])
    return why


def _first(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a person needs before anything else: the root that takes the least to see.

    What happens without a fault comes before what needs one, then the shortest.
    """
    broken = {name: one for name, one in info["promises"].items() if one["verdict"] == "broken"}
    less = info.get("smallest") or {}
    if less.get("anomaly"):
        return _first_of(info, less["promise"], less["anomaly"]) | {"repeat": less["repeat"]}
    roots = [(name, root) for name, one in broken.items() for root in _roots(one)]
    # Only the first of a kind are told with their faults, and a cause is only as good as those.
    whole = [(name, root) for name, root in roots if "faults" in root] or roots
    drawn = [(name, root) for name, root in whole if root.get("operations")]
    if drawn:
        return _first_of(info, *min(drawn, key=lambda each: _size(each[1])))
    for name, one in broken.items():
        return {
            "promise": name,
            "because": one["because"],
            "drawing": None,
            "story": "",
            "example": next(_examples(one["evidence"].get("scenarios", {})), None),
            "cause": causes.of_promise(name, one, info["environment"]),
            "repeat": (less if less.get("promise") == name else info).get("repeat", ""),
        }
    return None


def _first_of(info: Mapping[str, Any], promise: str, root: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_anomaly(info, promise, root),
        **_in_names(root),
        "promise": promise,
        "story": root.get("story", ""),
        "example": None,
        "repeat": info.get("repeat", ""),
    }


def _in_names(root: Mapping[str, Any]) -> dict[str, Any]:
    """The sentence and the drawing, in the names of the story above them."""
    short = named({**root, "nearby": []})
    return {"because": short["because"], "drawing": timeline.draw(short)}


def _size(root: Mapping[str, Any]) -> tuple[int, int, int]:
    """Faults (one that lasts is one), operations, messages."""
    operations = root["operations"]
    messages = sum(len(one.get("messages") or ()) for one in operations)
    faults = len(root.get("faults") or ()) or root.get("fault") in LASTING
    return int(faults), len(operations), messages


def _roots(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [anomaly for anomaly in one["anomalies"] if anomaly.get("follows_from") is None]


def _evidence(scenario: str, seen: Mapping[str, Any]) -> dict[str, Any]:
    """One scenario's part in a verdict: its name, its own verdict, and what it counted."""
    facts = {name: value for name, value in seen.items() if name not in ("verdict", "examples")}
    facts = {_SAID_OF.get(name, name): value for name, value in facts.items()}
    return {"scenario": scenario, "verdict": seen.get("verdict", ""), "numbers": in_words(facts)}


def _tally(evidence: list[dict[str, Any]]) -> str:
    """How many scenarios spoke, and how."""
    counted = Counter(one["verdict"] for one in evidence if one["verdict"])
    each = ", ".join(f"{many} {verdict}" for verdict, many in counted.items())
    noun = "scenario" if len(evidence) == 1 else "scenarios"
    return f"{len(evidence)} {noun}{': ' if each else ''}{each}"


def _findings(info: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A section for each promise that was broken."""
    for name, one in info["promises"].items():
        if one["verdict"] != "broken":
            continue
        roots = _roots(one)
        chosen = _chosen(roots)
        examples = list(_examples(one["evidence"].get("scenarios", {})))
        total = one["evidence"].get("anomalies", len(roots))
        yield {
            "id": name,
            "meaning": BY_ID[name].sentence if name in BY_ID else "",
            "because": one["because"],
            "anomalies": [
                _anomaly(info, name, anomaly) | {"echoes": echoes}
                for anomaly, echoes in _with_echoes(chosen, one["anomalies"])
            ],
            "examples": examples,
            "cause": None if chosen else causes.of_promise(name, one, info["environment"]),
            "more": total - len(chosen),
            "kinds": ", ".join(dict.fromkeys(a["name"] for a in roots)),
        }


def _chosen(anomalies: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first of each name, then of each scenario: the same again teaches nothing new."""
    whole = [anomaly for anomaly in anomalies if "conversation" in anomaly] or anomalies
    names: dict[Any, Mapping[str, Any]] = {}
    for anomaly in whole:
        names.setdefault(anomaly["name"], anomaly)
    for anomaly in whole:
        kind = anomaly["name"], anomaly.get("scenario")
        if not any((a["name"], a.get("scenario")) == kind for a in names.values()):
            names[kind] = anomaly
    return list(names.values())[:SHOWN_MAX]


def _with_echoes(
    chosen: list[Mapping[str, Any]], anomalies: list[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], dict[str, Any] | None]]:
    """Each root with what follows from it: from its kind; the last has what no other explains."""
    left = [anomaly for anomaly in anomalies if anomaly.get("follows_from") is not None]
    for at, root in enumerate(chosen, 1):
        is_last = at == len(chosen)
        own = [echo for echo in left if is_last or root["name"] in echo["follows_from"]]
        left = [echo for echo in left if not is_last and root["name"] not in echo["follows_from"]]
        counted = Counter(echo["name"] for echo in own)
        because = list(dict.fromkeys(echo["because"] for echo in own))
        yield (
            root,
            {
                "words": ", ".join(f"{count} {name}" for name, count in counted.items()),
                "because": because[:ECHOES_MAX],
                "more": len(because[ECHOES_MAX:]),
            }
            if own
            else None,
        )


def _anomaly(info: Mapping[str, Any], promise: str, anomaly: Mapping[str, Any]) -> dict[str, Any]:
    talk = anomaly.get("conversation")
    return {
        "name": anomaly["name"],
        "scenario": anomaly.get("scenario", ""),
        "session": anomaly.get("session", ""),
        "because": anomaly["because"],
        "drawing": timeline.draw(anomaly),
        "steps": timeline.steps_of(anomaly),
        "conversation": None if talk is None else _conversation(talk),
        "faults": list(_landed(info, anomaly)),
        "more_faults": anomaly.get("faults_between", 0) - len(anomaly.get("faults", ())),
        "cause": causes.likely(promise, info["environment"], anomaly),
    }


def _landed(info: Mapping[str, Any], anomaly: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The faults between the operations of a witness, each kind once."""
    faults = anomaly.get("faults") or ()
    between = Counter(fault["name"] for fault in faults if not timeline.is_over(fault))
    for name, count in between.items():
        landed = info["faults"].get(name, {}).get("landed", count)
        yield {"name": name, "count": count, "landed": landed}


_SAYS: Final[Mapping[str, str]] = {
    "missing": "missing",
    "extra": "must not be here",
    "twice": "shown twice",
    "misplaced": "in the wrong place",
}


def _conversation(talk: Mapping[str, Any]) -> dict[str, Any]:
    """The lines with their words; `empty` where the read showed nothing at all."""
    lines = [line if "skipped" in line else _line(line) for line in talk["lines"]]
    shown = sum(
        line["skipped"] - line["missing"] if "skipped" in line else line["mark"] != "missing"
        for line in lines
    )
    return {"lines": lines, "empty": shown == 0}


def _line(line: Mapping[str, Any]) -> dict[str, Any]:
    return {**line, "words": _said(line), "says": _SAYS.get(line["mark"], "")}


def _said(line: Mapping[str, Any]) -> str:
    """The words of a message without its id, which stands beside them."""
    content = line["content"]
    if content is None:
        return "(nobody wrote this message)"
    return str(content).removeprefix(line["id"]).strip() or line["id"]


def _examples(scenarios: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for scenario, seen in scenarios.items():
        for example in seen.get("examples", ()):
            if example.get("sent") == example.get("seen") and "sent" in example:
                continue  # no difference that a reader could see
            yield {"scenario": scenario, **example}


def _coverage(counts: Mapping[str, int]) -> dict[str, Any]:
    """Of what was acknowledged, how much was read back; in percent, for a bar."""
    whole = counts.get("acknowledged", 0)
    read = counts.get("read_back", 0)
    percent = round(100 * read / whole, 1) if whole else 0.0
    return {
        "acknowledged": whole,
        "read_back": read,
        "never_read": counts.get("never_read", whole - read),
        "undecided": counts.get("undecided", 0),
        "percent": percent,
    }


def _counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The other counts, known ones first, in words."""
    rest = [name for name in _COUNTS if name in counts and name not in _COVERAGE]
    rest += [name for name in counts if name not in _COUNTS]
    return [(_COUNTS.get(name, name.replace("_", " ")), counts[name]) for name in rest]


def _fault(name: str, tally: Mapping[str, Any]) -> dict[str, Any]:
    seen = list(dict.fromkeys(tally.get("seen", ())))
    return {
        "name": name,
        "landed": tally.get("landed", 0),
        "in_flight": tally.get("in_flight", 0),
        "seen": seen[:SEEN_MAX],
        "more": len(seen[SEEN_MAX:]),
        "not_run": tally.get("not_run"),
    }
