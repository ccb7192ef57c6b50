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
