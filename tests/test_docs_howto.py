"""What the pages tell to type, to deploy and to alarm on is what there is: options, metrics, figures."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from holdfast.cli import main
from holdfast.doctor import metrics
from holdfast.doctor.finding import Audit, Measure
from holdfast.doctor.tally import Tally

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"[\w.]+\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RESULTS = ROOT / "docs" / "results" / "durability.md"


def fences(page: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(page.read_text("utf-8")):
        if language in languages:
            yield text


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `holdfast …` that a reader may type; a line may go on below."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if re.match(r"^\s*(?:\$ |! |(?:- )?run: (?:sudo .*)?)?holdfast ", line):
            words = shlex.split(line.partition("holdfast ")[2], comments=True)
            if words and words[0] in main.commands:
                yield words


def understood(words: list[str]) -> None:
    """The parser itself: whatever is no option of the command is refused."""
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words[0]]
        words = words[1:]
    context = click.Context(command, info_name=command.name)
    words = [word for word in words if word not in ("|", "…", ">", ">>")]
    command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_is_one_that_is_understood(page: Path):
    for text in fences(page, "console", "bash", "yaml"):
        joined = _folded(text)
        for words in commands(joined):
            understood(words)


def _folded(text: str) -> str:
    """`run: >` and what is indented below it, as the one line that it is."""
    return re.sub(
        r"run: >\n((?:\s+.*\n)+?)(?=\s*- |\Z|```)",
        lambda found: "run: " + " ".join(found[1].split()) + "\n",
        text,
    )


def test_a_command_that_is_not_understood_is_noticed():
    step = (
        "      - name: x\n        run: >\n          sudo holdfast check x\n          --no-such 1\n"
    )
    [words] = commands(_folded(step))
    with pytest.raises(click.NoSuchOption):
        understood(words)


def _workflows() -> Iterator[Any]:
    for page in PAGES:
        yield from (yaml.safe_load(text) for text in fences(page, "yaml"))


def test_every_yaml_on_a_page_is_yaml_and_a_job_has_steps():
    found = list(_workflows())
    jobs = [job for one in found if "jobs" in one for job in one["jobs"].values()]
    assert len(jobs) >= 2
    assert all(job["runs-on"] and job["steps"] for job in jobs)


def test_every_alarm_is_about_a_metric_that_there_is():
    doctor = "".join(file.read_text("utf-8") for file in Path(metrics.__file__).parent.glob("*.py"))
    measured = set(re.findall(r'Measure\("(\w+)"', doctor))
    tally = Tally(errors=Counter(EngineUnreachable=1))
    tally.audit = Audit("redis", "here", measures=tuple(Measure(name, 1.0) for name in measured))
    collector = metrics.TallyCollector(tally)
    shown = {sample.name for metric in collector.collect() for sample in metric.samples}
    rules = [rule for one in _workflows() if "groups" in one for rule in one["groups"][0]["rules"]]
    assert len(rules) >= 10
    for rule in rules:
        asked = set(re.findall(r"holdfast_\w+", rule["expr"]))
        assert asked, rule
        assert asked <= shown, rule["alert"]


def test_figures_on_other_pages_are_those_of_the_results():
    rows = {
        cells[0].strip("` "): [cell.strip() for cell in cells]
        for line in RESULTS.read_text("utf-8").splitlines()
        if line.startswith("| `") and len(cells := line.strip("|").split("|")) == 7
    }
    assert len(rows) >= 15
    production = (ROOT / "docs" / "howto" / "production.md").read_text("utf-8")
    quoted = re.findall(r"\| `([\w+-]+)`: ([^|]+?) \|", production)
    assert len(quoted) >= 6
    for name, figure in quoted:
        assert figure == rows[name][3], name
    incident = (ROOT / "docs" / "incidents" / "n4-selective-forgetting.md").read_text("utf-8")
    table = [line for line in incident.splitlines() if line.startswith("| `")]
    assert len(table) == 7
    assert all(line in RESULTS.read_text("utf-8").splitlines() for line in table)
