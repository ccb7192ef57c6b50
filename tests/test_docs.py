"""Every example in the README and the documentation is run, page by page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins import WITHOUT_OTHERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```(?:(python|bash)|\w+ title=\"([\w.]+)\")\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
NEEDS_DOCKER = ("docker", "compose")
NOT_RUN = ("pip install", "make ", "sudo ", "docker ", "git ")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, or else the name of the file that it is; and the text."""
    return BLOCK.findall(page.read_text("utf-8"))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_examples_of_a_page_work(page: Path, disk_path: Path, request: pytest.FixtureRequest):
    """Python blocks of a page continue one another; commands run after what stands above them.

    A block with a title is a file of that name.
    """
    run_to = 0
    if any(word in page.name for word in NEEDS_DOCKER):
        request.getfixturevalue("daemon")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program: list[str] = []
    again = disk_path / "again"
    again.mkdir()
    for language, title, text in blocks(page):
        if title:
            for folder in (disk_path, again):
                (folder / title).write_text(text, "utf-8")
        elif language == "python":
            program.append(text)
        else:
            if run_to < len(program):
                _run_python(program, disk_path, path)
                run_to = len(program)
            for line in text.splitlines():
                if line.strip() and not line.startswith(NOT_RUN):
                    _run(["bash", "-euc", line], disk_path, path)
    if run_to < len(program):
        _run_python(program, again, path)


def _run_python(program: list[str], folder: Path, path: str) -> None:
    _run([sys.executable, "-W", "error", "-c", "\n".join(program)], folder, path)


def _run(command: list[str], folder: Path, path: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path, "PYTEST_ADDOPTS": " ".join(WITHOUT_OTHERS)},
        timeout=110,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path):
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{name(page)} links to {target}"
