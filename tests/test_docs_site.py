"""The site builds offline without a warning, every link in it leads somewhere, and no name is left out."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import holdfast
from holdfast import pytest_plugin

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src"}
DOCUMENTED = (
    "holdfast",
    "holdfast.verify",
    "holdfast.verify.engines",
    "holdfast.verify.faults",
    "holdfast.verify.judge",
    "holdfast.doctor",
)
FIELDS_TOLD = ("holdfast", "holdfast.verify", "holdfast.verify.engines")
"""Every field of a class of these has words of its own, or is named in those of its class."""


class Page(HTMLParser):
    """What a page links to, what it fetches, the places in it, and its text outside of code."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.prose: list[str] = []
        self._quoted = 0
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in FETCHED and FETCHED[tag] in given:
            self.fetched.append(given[FETCHED[tag]])
        self._quoted += tag in ("code", "pre", "script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quoted -= tag in ("code", "pre", "script", "style")

    def handle_data(self, data: str) -> None:
        if not self._quoted:
            self.prose.append(data)


def test_the_site_builds_strictly_is_whole_and_fetches_nothing(tmp_path: Path):
    """One test, so that it is built once. (With --quiet, --strict would count no warning.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {file: Page(file) for file in tmp_path.rglob("*.html") if file.name != "404.html"}
    assert len(pages) == len(list(DOCS.rglob("*.md")))
    for file, page in pages.items():
        for link in [*page.links, *page.fetched]:
            _follow(link, file, tmp_path, pages)
        assert not [url for url in page.fetched if "//" in url], "a site that works offline"
        left = re.findall(r"```|\]\(|\*\*|^\| |:::|no-run", "".join(page.prose), re.MULTILINE)
        assert not left, f"{file.relative_to(tmp_path)} was not rendered whole"
    reference = [page for file, page in pages.items() if file.parts[-3] == "reference"]
    places = set[str]().union(*(page.places for page in reference))
    for name in _public():
        assert name in places, name


def _follow(link: str, file: Path, site: Path, pages: dict[Path, Page]) -> None:
    if re.match(r"[a-z]+:", link):
        return
    path, _, place = unquote(link).partition("#")
    target = (file.parent / path).resolve() if path else file
    target = target / "index.html" if target.is_dir() else target
    assert target.exists(), f"{file.relative_to(site)} links to {link}"
    if place and target in pages:
        assert place in pages[target].places, f"{file.relative_to(site)} links to {link}"


def _public() -> Iterator[str]:
    for module in DOCUMENTED:
        names = importlib.import_module(module).__all__
        yield from (f"{module}.{name}" for name in names if name != "__version__")


def _fixtures() -> Iterator[str]:
    for value in vars(pytest_plugin).values():
        if type(value).__name__ == "FixtureFunctionDefinition":
            yield value._get_wrapped_function().__name__ if value.name is None else value.name


def test_the_reference_has_every_fixture_and_option():
    words = (DOCS / "reference" / "pytest.md").read_text("utf-8")
    names = {name for name in _fixtures() if not name.startswith("_")}
    assert {"redis_engine", "app_service", "crash_at", "engine_factory"} <= names
    options = re.findall(r'"(--holdfast-\w+)"', inspect.getsource(pytest_plugin.pytest_addoption))
    assert len(options) == 3
    assert not [name for name in [*names, *options] if f"`{name}" not in words]


def test_every_public_class_and_function_says_what_it_is():
    for name in _public():
        module, _, short = name.rpartition(".")
        thing = getattr(importlib.import_module(module), short)
        if inspect.isclass(thing):
            _told(thing, fields=module in FIELDS_TOLD)
        elif callable(thing):
            assert thing.__doc__, name


def _told(thing: type, *, fields: bool) -> None:
    """Also its methods; and its fields, each in words of its own or in those of the class."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(tree, ast.ClassDef)
    words = ast.get_docstring(tree) or ""
    assert words, thing
    for node, following in pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.name.startswith("_") or ast.get_docstring(node), f"{thing}.{node.name}"
        elif fields and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told = isinstance(following, ast.Expr) or f"`{node.target.id}" in words
            assert told, f"{thing}.{node.target.id}: neither described nor named by its class"


def test_the_map_has_a_line_for_every_room():
    words = (DOCS / "internals" / "map.md").read_text("utf-8")
    folder = Path(holdfast.__file__).parent
    rooms = [*folder.glob("*/__init__.py"), *folder.glob("verify/*/__init__.py")]
    assert len(rooms) > 10
    missing = [
        file.parent.name
        for file in rooms
        if not re.search(rf"^ +{file.parent.name}/ ", words, re.MULTILINE)
    ]
    assert not missing
