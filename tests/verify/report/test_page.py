"""The page: everything stays text, everything is told, the same again is counted."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.verify.report import html, view
from holdfast.verify.story import named
from tests.verify.report.results import PROMISES, everything


class Tags(HTMLParser):
    """What a browser would make of a page: its elements, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def words(page: str) -> str:
    return " ".join(Tags(page).text.split())


def test_every_part_of_a_result_is_on_the_page():
    told = words(html.render(everything()))
    for promise in PROMISES:
        assert promise in told
    for part in (
        "It broke 6 of 11 promises",
        "'a.0' was acknowledged (append 2) before read 5 began",
        "4096 unsynced bytes were dropped",
        "not caused there is no network",
        "holdfast check everything --seed 5",
        "stopped by Ctrl-C",
        "went in [1, 2] came back",
        "read back (75.0 %)",
        "odd ones",
        "settings pool 5",
        "and 2 more",
    ):
        assert part in told, part


def test_nothing_that_a_store_says_becomes_markup():
    evil = "</style></title><script>x</script>\"' onload=x {{ 7*7 }} \ud800\u202e\x00"

    def poison(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: poison(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [poison(item, name) for item in value]
        kept = name in ("verdict", "f", "status", "mark", "role")
        return value if kept or not isinstance(value, str) else value + evil

    plain, evil_page = html.render(everything()), html.render(poison(everything()))
    evil_page.encode()  # no half character is left
    assert Tags(evil_page).names == Tags(plain).names
    assert {name for name, _ in Tags(evil_page).attributes} == {
        name for name, _ in Tags(plain).attributes
    }
    assert "{{ 7*7 }}" in Tags(evil_page).text
    assert "\u202e" not in evil_page


def test_the_page_asks_for_nothing_and_runs_nothing():
    tags = Tags(html.render(everything()))
    assert not {"script", "img", "iframe", "object", "embed", "base"} & set(tags.names)
    asked = [value for name, value in tags.attributes if name in ("href", "src", "action")]
    assert all(value is not None and value.startswith(("#", "data:,")) for value in asked)
    assert not [name for name, _ in tags.attributes if name.startswith("on")]


def test_the_same_again_is_counted_not_shown():
    result = everything()
    one = result["promises"]["durable"]
    one["anomalies"] *= 30
    one["evidence"]["anomalies"] = 700
    finding = next(f for f in view.page(result)["findings"] if f["id"] == "durable")
    assert len(finding["anomalies"]) == 1
    assert finding["more"] == 699
    assert "699 more of the same (lost)" in words(html.render(result))


def _told(anomaly: dict[str, Any]) -> str:
    """Its sentence, in the names of the story beside it."""
    short = named(anomaly)["because"]
    assert short.startswith("a0 was acknowledged (A's append) before B's read began")
    return str(short)


def test_the_first_screen_shows_the_root_that_takes_the_least_to_see():
    result = everything()
    few = result["promises"]["durable"]["anomalies"][0]
    many = few | {"operations": few["operations"] * 3}
    calm = few | {"faults": [], "because": "it happens without a fault"}
    result["promises"] = {
        "durable": result["promises"]["durable"] | {"anomalies": [many, few]},
        "fresh": result["promises"]["durable"] | {"anomalies": [calm | {"follows_from": ["lost"]}]},
    }
    unclear = {k: v for k, v in few.items() if k != "faults"} | {"because": "which faults?"}
    result["promises"]["durable"]["anomalies"] += [unclear]
    first = view.page(result)["first"]
    assert (first["promise"], first["because"]) == ("durable", _told(few))
    assert first["story"] == "A appends a0 a1 · SIGKILL · B reads […] without a0"
    result["promises"]["fresh"]["anomalies"].append(calm)
    first = view.page(result)["first"]
    assert first["because"] == "it happens without a fault"
    assert "(a lost update)" in first["cause"].cause  # another wrote at the same time
    result["promises"]["fresh"]["anomalies"] = [{"name": "lost", "because": "no operations"}]
    assert view.page(result)["first"]["promise"] == "durable"


def test_a_fault_that_lasts_is_one_that_the_first_screen_counts():
    result = everything()
    few = result["promises"]["durable"]["anomalies"][0]
    lasting = few | {"faults": [], "fault": "disk", "because": "while the disk failed"}
    calm = few | {"faults": [], "fault": "", "operations": few["operations"] * 2}
    result["promises"] = {
        "durable": result["promises"]["durable"] | {"anomalies": [lasting, calm]},
    }
    assert view.page(result)["first"]["because"] == _told(calm)


def test_what_was_shrunk_stands_on_the_first_screen_with_its_own_command():
    result = everything()
    root = result["promises"]["durable"]["anomalies"][0] | {"because": "less <b>", "story": "A"}
    less = {"promise": "durable", "anomaly": root, "story": "A", "repeat": "holdfast check less"}
    first = view.page(result | {"smallest": less})["first"]
    assert (first["because"], first["story"], first["repeat"]) == ("less <b>", "A", less["repeat"])
    page = words(html.render(result | {"smallest": less}))
    assert "Repeat it holdfast check less" in page
    assert "holdfast check everything --seed 5" in page
    without = view.page(result | {"smallest": less | {"anomaly": None}})["first"]
    assert without["repeat"] == "holdfast check everything --seed 5"


def test_without_anomalies_the_first_screen_has_the_pair_that_differs_or_the_sentence():
    result = everything()
    result["promises"] = {"faithful": result["promises"]["faithful"]}
    first = view.page(result)["first"]
    assert (first["example"]["sent"], first["example"]["seen"]) == ("[1, 2]", '"[1, 2]"')
    result["promises"]["faithful"]["evidence"] = {}
    first = view.page(result)["first"]
    assert first["because"] == "a list did not come back"
    assert first["example"] is None
    assert view.page(everything() | {"promises": {}})["first"] is None


def test_evidence_is_in_words_and_units():
    seen = {
        "verdict": "broken", "acknowledged": 225, "failed": 0,
        "power": {"mechanism": "block", "cuts": 3, "unsynced_bytes": 122_880, "in_flight": 38},
        "lines": ["a.py:3", "b.py:4"], "refused": ["w", "x", "y", "z"], "took_s": 2.5,
        "required": "DISK", "window_ms": 812.4, "odd": [{"a": 1}], "deep": {"x": {"y": 7}},
    }  # fmt: skip
    result = everything()
    result["promises"]["durable"]["evidence"]["scenarios"] = {"power-cut": seen}
    result["environment"]["settings"] = {"nodes": ["a", "b"], "save": "", "tls": False}
    page = html.render(result)
    told = words(page)
    for part in (
        "225 acknowledged", "power: mechanism block, 3 cuts, 120 KiB unsynced, 38 in flight",
        "lines a.py:3, b.py:4", "4 refused", "took 2.5 s", "required DISK", "window 812.4 ms",
        "1 odd", "deep: x: 7 y", "settings nodes a, b", "settings save (empty)", "settings tls no",
    ):  # fmt: skip
        assert part in told, part
    assert "{'" not in told
    assert "['" not in told
    assert "2 scenarios" not in told
    assert "1 scenario: 1 broken" in told


def test_what_follows_is_folded_under_its_root():
    result = everything()
    one = result["promises"]["durable"]
    root = one["anomalies"][0]
    echo = {**root, "name": "hole", "follows_from": ["lost"], "because": "a hole of read 9"}
    one["anomalies"] += [echo] * 30
    [shown] = next(f for f in view.page(result)["findings"] if f["id"] == "durable")["anomalies"]
    assert shown["echoes"]["words"] == "30 hole"
    assert shown["echoes"]["because"] == ["a hole of read 9"]
    assert "30 hole" in words(html.render(result))


def test_ten_thousand_findings_are_one_page_of_bounded_size():
    result = everything()
    one = result["promises"]["durable"]
    one["anomalies"] = one["anomalies"] * 10_000
    one["anomalies"] += [one["anomalies"][0] | {"follows_from": ["lost"]}] * 10_000
    root = one["anomalies"][0]
    wide = root | {"operations": root["operations"] * 5_000, "name": "rollback"}
    one["anomalies"].append(wide)
    assert len(html.render(result)) < 1_000_000


def test_another_name_and_another_scenario_are_shown_before_the_same_again():
    result = everything()
    one = result["promises"]["durable"]
    first = one["anomalies"][0]
    other = first | {"name": "rollback"}
    one["anomalies"] = [first, first | {"scenario": "pause-client"}, first, other]
    shown = next(f for f in view.page(result)["findings"] if f["id"] == "durable")["anomalies"]
    assert [anomaly["name"] for anomaly in shown] == ["lost", "rollback"]


def test_names_of_later_releases_are_shown_as_they_are():
    result = everything()
    result["promises"]["eternal"] = result["promises"]["durable"]
    result["faults"]["meteor"] = {"landed": 1, "in_flight": 0, "seen": ["a crater"]}
    told = words(html.render(result))
    assert "eternal" in told
    assert "a crater" in told


def test_a_result_with_nothing_in_it_is_a_page_too():
    empty = {
        "target": "t", "seed": 1, "verdict": "unknown", "promises": {}, "faults": {},
        "counts": {"acknowledged": 0, "read_back": 0, "lost": 0}, "environment": {}, "repeat": "",
    }  # fmt: skip
    assert "Not everything could be known" in words(html.render(empty))


def test_a_text_of_a_megabyte_is_cut():
    result = everything() | {"target": "x" * 1_000_000}
    assert len(html.render(result)) < 300_000
    assert "and 999000 characters more" in words(html.render(result))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:s3cret@h:6379/0", "redis://me:…@h:6379/0"),
        ("redis://:s3cret@h", "redis://:…@h"),
        ("postgresql://h:5432/d?password=s3cret&x=1", "postgresql://h:5432/d?password=…&x=1"),
        ("redis://h:6379/0", "redis://h:6379/0"),
    ],
)
def test_a_password_in_a_url_is_not_shown_around(url: str, shown: str):
    page = html.render(everything() | {"target": url, "repeat": f"holdfast check {url} --seed 1"})
    assert "s3cret" not in page
    assert f"holdfast check {shown} --seed 1" in words(page)


def test_a_result_from_a_file_makes_the_same_page():
    result = everything()
    assert html.render(json.loads(json.dumps(result))) == html.render(result)


def test_without_the_template_engine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[verify\]'"):
        html.ensure_ready()


def test_the_command_starts_without_the_template_engine():
    code = "import sys, holdfast.cli, holdfast.verify.report.html; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
